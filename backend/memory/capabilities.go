package memory

import (
	"context"
	"errors"
	"time"

	"github.com/aetomala/worklease/backend"
)

// RenewBatch implements [backend.BatchRenewer]. Nothing is ever busy in memory.
func (b *Backend) RenewBatch(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error) {
	if err := look(ctx, "renew batch"); err != nil {
		return nil, err
	}
	verdicts := make([]error, len(records))
	for i, record := range records {
		err := b.renew(ctx, "renew batch", record, ttl)
		if err != nil && !errors.Is(err, backend.ErrFenced) && !errors.Is(err, backend.ErrLeaseExpired) {
			return nil, err // ctx is done
		}
		verdicts[i] = err
	}
	return verdicts, nil
}

// Free implements [backend.Looker]. It looks at one work ID after another, each at its own time.
func (b *Backend) Free(ctx context.Context, workIDs []string) ([]string, error) {
	if err := look(ctx, "free"); err != nil {
		return nil, err
	}
	var free []string
	for _, workID := range workIDs {
		s := b.shard(workID)
		now, err := b.enter(ctx, "free", s)
		if err != nil {
			return nil, err
		}
		if r := s.rows[workID]; r == nil || !now.Before(r.expiresAt) {
			free = append(free, workID)
		}
		s.mu.Unlock()
	}
	return free, nil
}

// AcquireRead implements [backend.AcquireReader].
func (b *Backend) AcquireRead(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
	record, found, err := b.acquire(ctx, "acquire and read", workID, holderID, ttl)
	found.State = copyOf(found.State)
	return record, found, err
}

// CheckpointRelease implements [backend.CheckpointReleaser].
func (b *Backend) CheckpointRelease(ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
	if !mode.Declarable() {
		return invalidExit(mode)
	}
	stored := copyOf(state)
	return b.matched(ctx, "checkpoint and release", record, func(s *shard, r *row, now time.Time) error {
		if r.exit != backend.ExitNone {
			return backend.ErrLeaseExpired
		}
		r.state, r.exit = stored, mode
		r.expiresAt, r.updatedAt = now, now
		s.wake(record.WorkID)
		return nil
	})
}

// ReleaseAfter implements [backend.DelayedReleaser].
func (b *Backend) ReleaseAfter(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode, delay time.Duration) error {
	return b.release(ctx, "release after", record, mode, delay)
}
