package worklease

import (
	"fmt"
	"time"

	"github.com/aetomala/worklease/backend"
)

// Token is the proof of one tenure, from the Acquire that returned it to its Release. The same token
// serves throughout, whatever is renewed meanwhile. It is a value: copies are the same tenure, are
// equal, and may be used from any goroutine. The zero Token is fenced everywhere.
type Token struct {
	record backend.LeaseRecord
	hold   *hold // what is known of the lease; nil in the zero Token
}

// WorkID returns the name of the work that is leased.
func (t Token) WorkID() string { return t.record.WorkID }

// HolderID returns the holder ID of the [Lease] that acquired.
func (t Token) HolderID() string { return t.record.HolderID }

// FencingToken returns a number greater than that of every earlier tenure in the store, for any work
// ID. A system that receives effects of the work can keep the highest number seen, and refuse lower ones.
func (t Token) FencingToken() uint64 { return t.record.FencingToken }

// ExpiresAt returns the expiry as it was at acquisition, by the store's clock. It is information and
// never moves: [LeaseWindow] says how long the holder can be sure of its lease.
func (t Token) ExpiresAt() time.Time { return t.record.ExpiresAt }

// String returns all that a reader of logs needs, with the expiry in UTC and cut to seconds.
func (t Token) String() string {
	return fmt.Sprintf("worklease.Token{workID=%q holderID=%q fencingToken=%d expiresAt=%s}",
		t.record.WorkID, t.record.HolderID, t.record.FencingToken, t.record.ExpiresAt.UTC().Format(time.RFC3339))
}
