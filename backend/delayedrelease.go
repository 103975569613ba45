package backend

import (
	"context"
	"time"
)

// DelayedReleaser is the capability of a store in which a Release can take effect later. Nothing takes
// its place: without it, a caller that needs one refuses to go on.
type DelayedReleaser interface {
	// ReleaseAfter records how the holder leaves, as Release does and with the same errors, and sets the
	// expiry to now+delay, be that earlier or later than it was. The tenure ends now: the holder gets
	// [ErrLeaseExpired] from Checkpoint, Renew and Release, while ReadCheckpoint and Forget work as
	// after a Release. Others get [ErrLeaseHeld] until the expiry has passed, and a Sweep leaves the
	// row alone; the next holder then finds the exit that was declared.
	//
	// A delay of zero or less is a Release.
	ReleaseAfter(ctx context.Context, record LeaseRecord, mode ExitMode, delay time.Duration) error
}
