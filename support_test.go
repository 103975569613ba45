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
	"github.com/aetomala/worklease/internal/faulty"
)

// errStore stands for any fault of a store: it matches no sentinel.
var errStore = errors.New("connection reset")

// newStore is a memory store that a test can stand in front of, one method at a time.
func newStore() *faulty.Store { return &faulty.Store{Backend: memory.New()} }

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
