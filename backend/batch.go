package backend

import (
	"context"
	"errors"
	"time"
)

// ErrBusy is the verdict of a [BatchRenewer] on a lease that is locked by somebody's transaction. It is
// no failure, and no answer either: nothing was changed, and Renew will tell. No method of [Backend]
// returns it.
var ErrBusy = errors.New("lease is locked by a transaction")

// BatchRenewer is the capability of a store that renews many leases in one round trip. Without it, each
// lease takes a Renew of its own.
type BatchRenewer interface {
	// RenewBatch renews each of records as Renew does, and returns a verdict on each, in their order:
	// nil, [ErrFenced] or [ErrLeaseExpired], [ErrBusy] for a lease whose row could not be had at once
	// and was left alone, or another error that Renew might return. No lease waits for another, and
	// none is refused because another was. The batch is not one atomic step; each renewal in it is.
	//
	// A non-nil error says that nothing is known of any of them, which may have been renewed or not;
	// there are no verdicts then. No records, no verdicts. A record may occur twice. The call keeps no
	// reference to records.
	//
	// A batch is as slow as it is large, and as many rows are locked by it: the caller splits what is
	// more than about 1,000.
	RenewBatch(ctx context.Context, records []LeaseRecord, ttl time.Duration) (verdicts []error, err error)
}
