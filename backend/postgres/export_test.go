package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/wake"
)

// Forgetful sets for a test how long a statement is sent unprepared once the server forgot it.
func Forgetful(t testing.TB, d time.Duration) {
	before := forgetful
	forgetful = d
	t.Cleanup(func() { forgetful = before })
}

// MaxState sets for a test how many bytes a state may have.
func MaxState(t testing.TB, n int) {
	before := maxState
	maxState = n
	t.Cleanup(func() { maxState = before })
}

// Queues returns for how many leases calls would queue up behind a transaction.
func (b *Backend) Queues() int {
	b.queues.mu.Lock()
	defer b.queues.mu.Unlock()
	return len(b.queues.byToken)
}

// Stuck returns how many calls go on although their callers have left.
func Stuck(b *Backend) int64 { return b.calls.Stuck() }

// Explain returns the verdicts on a batch whose statement has answered with these letters.
func Explain(ctx context.Context, b *Backend, records []backend.LeaseRecord, letters string) []error {
	verdicts := make([]error, len(records))
	b.explain(ctx, records, letters, verdicts)
	return verdicts
}

// ErrHeardNothing is the error of a connection that was given up since nothing was heard on it.
var ErrHeardNothing = wake.ErrHeardNothing

// Hurry has a store, at which nobody waits yet, end its listening at once when nobody waits, and try it
// whenever nothing was heard for a while.
func Hurry(b *Backend, silence, answer time.Duration) {
	b.ear.Linger, b.ear.Silence, b.ear.Answer = time.Nanosecond, silence, answer
}

// Payload is what the store expects to be notified of a work ID.
func Payload(workID string) string { return payload(workID) }
