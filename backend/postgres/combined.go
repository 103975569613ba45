package postgres

import (
	"context"
	"time"

	"github.com/aetomala/worklease/backend"
)

// AcquireRead implements [backend.AcquireReader].
func (b *Backend) AcquireRead(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
	var read reading
	record, err := b.acquire(ctx, acquireReadQuery, workID, holderID, ttl, &read)
	if err != nil {
		return backend.LeaseRecord{}, backend.Checkpoint{}, err
	}
	return record, read.found, nil
}

// CheckpointRelease implements [backend.CheckpointReleaser]. Like Release it refuses a context from
// [InTx], and like Checkpoint a state of more than 500 MiB.
func (b *Backend) CheckpointRelease(ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
	if len(state) > maxState && mode.Declarable() {
		return b.promptly(ctx, checkpointReleaseQuery.quiet.name, func(context.Context) error { return tooLarge(state) }, nil)
	}
	return b.release(ctx, checkpointReleaseQuery, record, mode, stored(state))
}

// ReleaseAfter implements [backend.DelayedReleaser]. Like Release it refuses a context from [InTx].
func (b *Backend) ReleaseAfter(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode, delay time.Duration) error {
	return b.release(ctx, releaseAfterQuery, record, mode, microseconds(max(delay, 0)))
}
