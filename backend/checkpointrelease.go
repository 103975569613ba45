package backend

import "context"

// CheckpointReleaser is the capability of a store that saves a final state and gives up the lease in one
// step. Without it, a Release follows the Checkpoint.
type CheckpointReleaser interface {
	// CheckpointRelease stores state, records how the holder leaves, and ends the lease at once, all in
	// one atomic step. It succeeds where a Checkpoint and a Release that follows it would: when mode may
	// be declared, record matches and no exit is declared yet. A lease that lapsed and that nobody has
	// claimed since is therefore saved and released too.
	//
	// Otherwise nothing is changed, and it fails, in this order, with [ErrInvalidExitMode] before the
	// store is touched, with [ErrFenced], and with [ErrLeaseExpired] if an exit is declared. nil and
	// empty state clear the state stored before, as in a Checkpoint.
	CheckpointRelease(ctx context.Context, record LeaseRecord, state []byte, mode ExitMode) error
}
