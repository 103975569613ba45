// Package faulty is a store for tests: one holder's way to a real store, which fails where a test says.
package faulty

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/aetomala/worklease/backend"
)

// Store passes every call on to the Backend in it. A function that is set takes the place of the method
// of its name, and may call on. Set them before the store is used. Store does not unwrap, so that no
// call takes a way around it.
type Store struct {
	backend.Backend
	OnAcquire        func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error)
	OnCheckpoint     func(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error
	OnRenew          func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error
	OnRelease        func(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error
	OnReadCheckpoint func(ctx context.Context, record backend.LeaseRecord) (backend.Checkpoint, error)

	// How often each was called.
	Acquires, Checkpoints, Renewals, Releases, Reads atomic.Int64
}

// Acquire implements [backend.Backend].
func (s *Store) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	s.Acquires.Add(1)
	if s.OnAcquire != nil {
		return s.OnAcquire(ctx, workID, holderID, ttl)
	}
	return s.Backend.Acquire(ctx, workID, holderID, ttl)
}

// Checkpoint implements [backend.Backend].
func (s *Store) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	s.Checkpoints.Add(1)
	if s.OnCheckpoint != nil {
		return s.OnCheckpoint(ctx, record, state, ttl)
	}
	return s.Backend.Checkpoint(ctx, record, state, ttl)
}

// Renew implements [backend.Backend].
func (s *Store) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	s.Renewals.Add(1)
	if s.OnRenew != nil {
		return s.OnRenew(ctx, record, ttl)
	}
	return s.Backend.Renew(ctx, record, ttl)
}

// Release implements [backend.Backend].
func (s *Store) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	s.Releases.Add(1)
	if s.OnRelease != nil {
		return s.OnRelease(ctx, record, mode)
	}
	return s.Backend.Release(ctx, record, mode)
}

// ReadCheckpoint implements [backend.Backend].
func (s *Store) ReadCheckpoint(ctx context.Context, record backend.LeaseRecord) (backend.Checkpoint, error) {
	s.Reads.Add(1)
	if s.OnReadCheckpoint != nil {
		return s.OnReadCheckpoint(ctx, record)
	}
	return s.Backend.ReadCheckpoint(ctx, record)
}

// Combining is a Store that also takes two steps in one, as stores with these capabilities do.
type Combining struct {
	*Store
	OnAcquireRead       func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, backend.Checkpoint, error)
	OnCheckpointRelease func(ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error

	AcquireReads, CheckpointReleases atomic.Int64
}

// AcquireRead implements [backend.AcquireReader].
func (s *Combining) AcquireRead(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
	s.AcquireReads.Add(1)
	if s.OnAcquireRead != nil {
		return s.OnAcquireRead(ctx, workID, holderID, ttl)
	}
	return s.Backend.(backend.AcquireReader).AcquireRead(ctx, workID, holderID, ttl)
}

// CheckpointRelease implements [backend.CheckpointReleaser].
func (s *Combining) CheckpointRelease(ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
	s.CheckpointReleases.Add(1)
	if s.OnCheckpointRelease != nil {
		return s.OnCheckpointRelease(ctx, record, state, mode)
	}
	return s.Backend.(backend.CheckpointReleaser).CheckpointRelease(ctx, record, state, mode)
}

// Looking is a Store that also tells which of many work IDs are free.
type Looking struct {
	*Store
	OnFree func(ctx context.Context, workIDs []string) ([]string, error)

	Looks atomic.Int64
	Most  atomic.Int64 // work IDs in one look
}

// Free implements [backend.Looker].
func (s *Looking) Free(ctx context.Context, workIDs []string) ([]string, error) {
	s.Looks.Add(1)
	s.Most.Store(max(s.Most.Load(), int64(len(workIDs))))
	if s.OnFree != nil {
		return s.OnFree(ctx, workIDs)
	}
	return s.Backend.(backend.Looker).Free(ctx, workIDs)
}
