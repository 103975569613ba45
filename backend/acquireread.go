package backend

import (
	"context"
	"time"
)

// AcquireReader is the capability of a store that acquires a lease and reads its checkpoint in one round
// trip. Without it, a ReadCheckpoint follows the Acquire.
type AcquireReader interface {
	// AcquireRead does what Acquire does, under the same rules and with the same errors, and returns
	// with the record what ReadCheckpoint would then return. With an error both are zero.
	AcquireRead(ctx context.Context, workID, holderID string, ttl time.Duration) (LeaseRecord, Checkpoint, error)
}
