package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/worker"
)

// diary keeps what an observer was told.
type diary struct {
	worklease.NoopObserver
	mu       sync.Mutex
	acquires []error
	renewals []error
	releases []worklease.ReleaseEvent
	forgets  []error
	fenced   []worklease.Operation
}

func (d *diary) OnAcquire(_ context.Context, e worklease.AcquireEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.acquires = append(d.acquires, e.Err)
}

func (d *diary) OnRenew(_ context.Context, e worklease.RenewEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renewals = append(d.renewals, e.Err)
}

func (d *diary) OnRelease(_ context.Context, e worklease.ReleaseEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.releases = append(d.releases, e)
}

func (d *diary) OnForget(_ context.Context, e worklease.ForgetEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgets = append(d.forgets, e.Err)
}

func (d *diary) OnFenced(_ context.Context, e worklease.FencedEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fenced = append(d.fenced, e.Operation)
}

// classOf is what the metrics of a user would count an error as: no text is looked at.
func classOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, worklease.ErrLeaseHeld):
		return "contention"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "cancel"
	case errors.Is(err, worklease.ErrFenced), errors.Is(err, worklease.ErrLeaseExpired), errors.Is(err, worklease.ErrLeaseWindowExhausted):
		return "lost"
	default:
		return "fault"
	}
}

func TestObserverTellsContentionCancelAndFaultApart(t *testing.T) {
	type acquire func(ctx context.Context, next func() (backend.LeaseRecord, error)) (backend.LeaseRecord, error)
	for _, tc := range []struct {
		name   string
		answer acquire
		class  string
	}{
		{"free", nil, "ok"},
		{"held", func(context.Context, func() (backend.LeaseRecord, error)) (backend.LeaseRecord, error) {
			return backend.LeaseRecord{}, &backend.HeldError{WorkID: workID, HolderID: "rival"}
		}, "contention"},
		{"held, by a store that does not know by whom", func(context.Context, func() (backend.LeaseRecord, error)) (backend.LeaseRecord, error) {
			return backend.LeaseRecord{}, backend.ErrLeaseHeld
		}, "contention"},
		{"cancelled", func(ctx context.Context, _ func() (backend.LeaseRecord, error)) (backend.LeaseRecord, error) {
			awaitEnd(ctx)
			return backend.LeaseRecord{}, ctx.Err()
		}, "cancel"},
		{"cancelled, with what the driver says", func(ctx context.Context, _ func() (backend.LeaseRecord, error)) (backend.LeaseRecord, error) {
			awaitEnd(ctx)
			return backend.LeaseRecord{}, errors.Join(errStore, ctx.Err())
		}, "cancel"},
		{"fault", func(context.Context, func() (backend.LeaseRecord, error)) (backend.LeaseRecord, error) {
			return backend.LeaseRecord{}, errStore
		}, "fault"},
		{"too late", func(_ context.Context, next func() (backend.LeaseRecord, error)) (backend.LeaseRecord, error) {
			defer time.Sleep(ttl)
			return next()
		}, "lost"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := newStore(), new(diary)
				if tc.answer != nil {
					s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
						return tc.answer(ctx, func() (backend.LeaseRecord, error) {
							return s.Backend.Acquire(ctx, workID, holderID, ttl)
						})
					}
				}
				runner := newRunner(t, worker.RunnerConfig{
					Lease:  newLease(t, s, worklease.Config{TTL: ttl, HolderID: "a", Observer: d}),
					WorkFn: returning(nil, nil),
				})
				ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
				defer cancel()
				err := runner.Run(ctx, workID)
				if class := classOf(err); class != tc.class {
					t.Errorf("Run says %s: %v", class, err)
				}
				if len(d.acquires) != 1 || classOf(d.acquires[0]) != tc.class {
					t.Errorf("the observer was told %v, want one %s", d.acquires, tc.class)
				}
			})
		})
	}
}

func TestObserverIsToldOfEveryAttemptWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newStore(), new(diary)
		if _, err := s.Backend.Acquire(t.Context(), workID, "rival", ttl); err != nil {
			t.Fatal(err)
		}
		runner := newRunner(t, worker.RunnerConfig{
			Lease:          newLease(t, s, worklease.Config{TTL: ttl, HolderID: "a", Observer: d}),
			WorkFn:         returning(nil, nil),
			AcquireOptions: []worklease.AcquireOption{worklease.WithWaitForLease()},
		})
		wantErr(t, runner.Run(t.Context(), workID))
		last := len(d.acquires) - 1
		if last < 4 || classOf(d.acquires[last]) != "ok" {
			t.Fatalf("the observer was told %v", d.acquires)
		}
		if slices.ContainsFunc(d.acquires[:last], func(err error) bool { return classOf(err) != "contention" }) {
			t.Errorf("the observer was told %v", d.acquires)
		}
	})
}
