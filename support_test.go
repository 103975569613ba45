package worklease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
)

// errStore stands for any fault of a store: it matches no sentinel.
var errStore = errors.New("connection reset")

// store is a memory store that a test can stand in front of, one method at a time. A nil func leaves
// the method to the memory store, which a func reaches through Backend.
type store struct {
	backend.Backend
	acquire    func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error)
	checkpoint func(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error
	renew      func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error
	release    func(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error
}

func newStore() *store { return &store{Backend: memory.New()} }

func (s *store) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	if s.acquire != nil {
		return s.acquire(ctx, workID, holderID, ttl)
	}
	return s.Backend.Acquire(ctx, workID, holderID, ttl)
}

func (s *store) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	if s.checkpoint != nil {
		return s.checkpoint(ctx, record, state, ttl)
	}
	return s.Backend.Checkpoint(ctx, record, state, ttl)
}

func (s *store) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	if s.renew != nil {
		return s.renew(ctx, record, ttl)
	}
	return s.Backend.Renew(ctx, record, ttl)
}

func (s *store) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	if s.release != nil {
		return s.release(ctx, record, mode)
	}
	return s.Backend.Release(ctx, record, mode)
}

func newLease(t testing.TB, b backend.Backend, holderID string, ttl time.Duration) worklease.Lease {
	t.Helper()
	return newObserved(t, b, holderID, ttl, nil)
}

func newObserved(t testing.TB, b backend.Backend, holderID string, ttl time.Duration, o worklease.LeaseObserver) worklease.Lease {
	t.Helper()
	l, err := worklease.New(b, worklease.Config{TTL: ttl, HolderID: holderID, Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func acquire(t testing.TB, l worklease.Lease, workID string) worklease.Token {
	t.Helper()
	token, err := l.Acquire(t.Context(), workID)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func mustMatch(t testing.TB, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error %v does not match %v", err, target)
		}
	}
}

func mustNotMatch(t testing.TB, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Errorf("error %v matches %v", err, target)
		}
	}
}

// mustEnd waits for ctx and checks when it ends, and why.
func mustEnd(t testing.TB, ctx context.Context, at time.Time, causes ...error) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(at) + time.Hour):
		t.Fatal("the context does not end")
	}
	if now := time.Now(); !now.Equal(at) {
		t.Errorf("the context ended %v from when it should", now.Sub(at))
	}
	mustMatch(t, context.Cause(ctx), causes...)
}

func mustBeAlive(t testing.TB, ctx context.Context) {
	t.Helper()
	if ctx.Err() != nil {
		t.Fatalf("the context has ended: %v", context.Cause(ctx))
	}
}

// windowOf returns when the window closes, counted from now.
func windowOf(t testing.TB, ctx context.Context) time.Duration {
	t.Helper()
	deadline, ok := worklease.LeaseWindow(ctx)
	if !ok {
		t.Fatal("there is no lease window")
	}
	return time.Until(deadline)
}

// recorder is an observer that keeps all events, in order.
type recorder struct {
	mu     sync.Mutex
	events []any
}

func (r *recorder) add(e any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) all() []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]any(nil), r.events...)
}

func eventsOf[T any](r *recorder) (found []T) {
	for _, e := range r.all() {
		if e, ok := e.(T); ok {
			found = append(found, e)
		}
	}
	return found
}

func (r *recorder) OnAcquire(_ context.Context, e worklease.AcquireEvent)       { r.add(e) }
func (r *recorder) OnCheckpoint(_ context.Context, e worklease.CheckpointEvent) { r.add(e) }
func (r *recorder) OnRenew(_ context.Context, e worklease.RenewEvent)           { r.add(e) }
func (r *recorder) OnRelease(_ context.Context, e worklease.ReleaseEvent)       { r.add(e) }
func (r *recorder) OnForget(_ context.Context, e worklease.ForgetEvent)         { r.add(e) }
func (r *recorder) OnFenced(_ context.Context, e worklease.FencedEvent)         { r.add(e) }
func (r *recorder) OnReadCheckpoint(_ context.Context, e worklease.ReadCheckpointEvent) {
	r.add(e)
}
