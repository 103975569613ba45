package backend

import (
	"context"
	"time"
)

// Backend stores leases. Rows are those described in the package comment; "now" is the store's own
// clock, read inside the atomic step and after any wait for a lock, never the caller's.
//
// These rules hold for every method of every store:
//
//   - A call is one attempt: no retry and no sleep. Sending it once more after the server has refused
//     it unread, as a prepared statement that it no longer knows, is the same attempt.
//   - A call changes what it promises in one atomic step, or nothing. Sweep alone may stop half-way.
//   - A Backend is safe for concurrent use.
//   - Fencing is checked before expiry: who does not match gets [ErrFenced], whatever the time.
//   - At its expiry instant a lease is over. A ttl of zero or less stores a lease that is already over.
//   - A row is released when an exit is declared on it. The expiry alone never says so.
//   - IDs are compared byte by byte.
//   - No slice is shared: a store keeps no reference to the caller's state, and the state that it
//     returns is the caller's to change. nil and empty state both mean "no state", read back as nil.
//   - A context that is already done gives an error matching ctx.Err() and changes nothing. A call
//     returns promptly once its context ends, even if what lies beneath it does not, and matches
//     ctx.Err() and the driver's error if there is one; such a call may have taken effect. An Acquire that is found to have won after its caller was told otherwise is
//     undone where that is possible.
//   - An error that is not one of this package's sentinels names the operation, wraps the driver's
//     error, and matches no sentinel.
//   - A store closes nothing that it was given.
type Backend interface {
	// Acquire takes the lease on workID for holderID until now+ttl. It succeeds when there is no row
	// or the row's expiry has passed; otherwise it fails with [ErrLeaseHeld], also for the holder ID
	// that holds the lease, and writes nothing. A store that knows who holds the lease wraps
	// ErrLeaseHeld in a [*HeldError].
	//
	// Success keeps the checkpoint, captures how the previous holder left ([ExitNone] and no holder ID
	// if there was no row, its declared exit if there was one, else [ExitExpired]) and clears the
	// declared exit. The record returned carries a new fencing token: greater than zero and greater
	// than any that the store has given out before for any work ID, also across Forget and Sweep. It
	// is drawn once the row is locked, so that a claimant that stalled never takes over with a smaller
	// token than its predecessor had. Gaps mean nothing.
	Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (LeaseRecord, error)

	// Checkpoint stores state and the expiry now+ttl in one step. It succeeds when record matches and
	// no exit is declared; a lease that lapsed and that nobody has claimed since is thereby revived.
	// What the previous holder left is not touched. Otherwise it fails with [ErrFenced] if record does
	// not match or there is no row, and with [ErrLeaseExpired] if an exit is declared.
	Checkpoint(ctx context.Context, record LeaseRecord, state []byte, ttl time.Duration) error

	// Renew sets the expiry to now+ttl. It succeeds when record matches and the lease is not over.
	// Otherwise it fails with [ErrFenced] if record does not match, and with [ErrLeaseExpired] if it
	// does but the lease has lapsed or was released.
	Renew(ctx context.Context, record LeaseRecord, ttl time.Duration) error

	// Release records how the holder leaves and ends the lease at once: an Acquire that follows
	// succeeds. It succeeds when mode is [ExitFinished], [ExitAbandoned] or [ExitRetired], record
	// matches and the lease is not over. Otherwise, and in this order, it fails with
	// [ErrInvalidExitMode] before the store is touched, with [ErrFenced], and with [ErrLeaseExpired]:
	// then nothing is recorded, so that a second Release cannot change what the first one said.
	Release(ctx context.Context, record LeaseRecord, mode ExitMode) error

	// ReadCheckpoint returns the stored state and how the previous holder left, which stays the same
	// for the whole tenure. It succeeds when record matches, whether the lease is over or not, and
	// fails with [ErrFenced] otherwise.
	ReadCheckpoint(ctx context.Context, record LeaseRecord) (Checkpoint, error)

	// Forget removes the row, so that the next holder finds neither state nor a previous exit. It
	// succeeds when record matches, whether the lease is held, lapsed or released, and fails with
	// [ErrFenced] otherwise, also when there is no row.
	Forget(ctx context.Context, record LeaseRecord) error

	// Sweep deletes the rows that opts selects and returns how many it deleted, also along with an
	// error. It never deletes a held row, nor one whose declared exit is finished or abandoned:
	// somebody will carry that work on.
	Sweep(ctx context.Context, opts SweepOptions) (int64, error)
}

// As finds the first of b, what b wraps, what that wraps, and so on, that is a T. A wrapper is
// unwrapped through a method Unwrap() Backend. ok is false if none is, or b is nil.
//
// A wrapper may offer a method that the store beneath it lacks; it then returns an error matching
// [errors.ErrUnsupported], and the caller does what it does for a store without the capability.
func As[T any](b Backend) (capability T, ok bool) {
	for b != nil {
		if capability, ok = b.(T); ok {
			return capability, true
		}
		wrapper, wraps := b.(interface{ Unwrap() Backend })
		if !wraps {
			break
		}
		b = wrapper.Unwrap()
	}
	return capability, false
}
