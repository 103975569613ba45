package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/worker"
)

// The work, the caller of Run and the observer are each told why a tenure ended, and agree.
func TestEachWayToLoseALeaseIsTold(t *testing.T) {
	type tenure struct {
		t      *testing.T
		store  backend.Backend
		lease  worklease.Lease
		token  worklease.Token
		cancel context.CancelCauseFunc
		renew  func(error) // what every renewal answers from now on
	}
	for _, tc := range []struct {
		name  string
		lose  func(tenure)
		cause error // of the work's context
		errs  []error

		fenced   []worklease.Operation
		renewal  string // the class of the last
		released []worklease.ExitMode
		forgets  int
	}{
		{
			name: "another holder took over",
			lose: func(n tenure) {
				if err := n.store.Release(n.t.Context(), recordOf(n.token), backend.ExitAbandoned); err != nil {
					n.t.Error(err)
				}
				if _, err := n.store.Acquire(n.t.Context(), workID, "rival", time.Hour); err != nil {
					n.t.Error(err)
				}
			},
			cause: worklease.ErrFenced, errs: []error{worklease.ErrFenced},
			fenced: []worklease.Operation{worklease.OperationRenew}, renewal: "lost",
		}, {
			name:  "the window ran out",
			lose:  func(n tenure) { n.renew(errStore) },
			cause: worklease.ErrLeaseWindowExhausted, errs: []error{worklease.ErrLeaseWindowExhausted, errWork},
			renewal: "fault",
		}, {
			name:  "the store let it lapse",
			lose:  func(n tenure) { n.renew(backend.ErrLeaseExpired) },
			cause: worklease.ErrLeaseExpired, errs: []error{worklease.ErrLeaseWindowExhausted, worklease.ErrLeaseExpired, errWork},
			renewal: "lost",
		}, {
			name: "the row was forgotten in the store",
			lose: func(n tenure) {
				if err := n.store.Forget(n.t.Context(), recordOf(n.token)); err != nil {
					n.t.Error(err)
				}
			},
			cause: worklease.ErrFenced, errs: []error{worklease.ErrFenced},
			fenced: []worklease.Operation{worklease.OperationRenew}, renewal: "lost",
		}, {
			// This process knows at once, and has no other holder to fear.
			name: "the row was forgotten by the work",
			lose: func(n tenure) {
				if err := n.lease.Forget(n.t.Context(), n.token); err != nil {
					n.t.Error(err)
				}
			},
			cause: worklease.ErrLeaseWindowExhausted, errs: []error{worklease.ErrLeaseWindowExhausted, errWork},
			renewal: "ok", forgets: 1,
		}, {
			name:  "the parent was cancelled",
			lose:  func(n tenure) { n.cancel(errShutdown) },
			cause: errShutdown, errs: []error{errWork},
			renewal: "ok", released: []worklease.ExitMode{worklease.ExitAbandoned},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := newStore(), new(diary)
				var renewErr atomic.Pointer[error]
				s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
					if err := renewErr.Load(); err != nil {
						return *err
					}
					return s.Backend.Renew(ctx, record, ttl)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				lease := newLease(t, s, worklease.Config{TTL: ttl, HolderID: "a", Observer: d})
				runner := newRunner(t, worker.RunnerConfig{
					Lease: lease,
					WorkFn: func(ctx context.Context, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
						time.Sleep(ttl)
						tc.lose(tenure{
							t: t, store: s.Backend, lease: lease, token: token, cancel: cancel,
							renew: func(err error) { renewErr.Store(&err) },
						})
						awaitEnd(ctx)
						if cause := context.Cause(ctx); !errors.Is(cause, tc.cause) {
							t.Errorf("the cause is %v, want %v", cause, tc.cause)
						}
						return nil, errWork
					},
				})
				wantErr(t, runner.Run(ctx, workID), tc.errs...)
				synctest.Wait()
				d.mu.Lock()
				defer d.mu.Unlock()
				if !slices.Equal(d.fenced, tc.fenced) {
					t.Errorf("OnFenced was called for %v, want %v", d.fenced, tc.fenced)
				}
				if class := classOf(d.renewals[len(d.renewals)-1]); class != tc.renewal {
					t.Errorf("the last OnRenew was told %s, want %s", class, tc.renewal)
				}
				if len(d.forgets) != tc.forgets {
					t.Errorf("OnForget was called %d times, want %d", len(d.forgets), tc.forgets)
				}
				var released []worklease.ExitMode
				for _, e := range d.releases {
					wantErr(t, e.Err)
					released = append(released, e.Mode)
				}
				if !slices.Equal(released, tc.released) {
					t.Errorf("OnRelease was called for %v, want %v", released, tc.released)
				}
			})
		})
	}
}

func TestRivalOfAFencedHolderIsUntouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		var rival backend.LeaseRecord
		runner := newRunner(t, worker.RunnerConfig{
			Lease: leaseOf(t, s, "a"),
			WorkFn: func(_ context.Context, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
				// The work comes back from a pause in which it was replaced, and saw nothing of it.
				if err := s.Backend.Release(t.Context(), recordOf(token), backend.ExitAbandoned); err != nil {
					t.Error(err)
				}
				var err error
				if rival, err = s.Backend.Acquire(t.Context(), workID, "rival", time.Hour); err != nil {
					t.Error(err)
				}
				return []byte("stale"), nil
			},
		})
		wantErr(t, runner.Run(t.Context(), workID), worklease.ErrFenced)
		if n := s.Releases.Load(); n != 0 {
			t.Errorf("a fenced holder released %d times", n)
		}
		found, err := s.Backend.ReadCheckpoint(t.Context(), rival)
		if err != nil {
			t.Fatal(err)
		}
		wantFound(t, found, "", worklease.ExitAbandoned, "a")
		if err := s.Backend.Renew(t.Context(), rival, time.Hour); err != nil {
			t.Errorf("the rival cannot renew: %v", err)
		}
	})
}

func TestWorkEndsBeforeAnotherHolderCanBegin(t *testing.T) {
	const (
		ttl     = 2 * time.Second
		latency = 10 * time.Millisecond // of the way to the store
	)
	errs := []error{
		errors.New("40001: could not serialize access"),
		errors.New("57014: canceling statement"),
		errStore,
		errors.Join(errStore, context.DeadlineExceeded),
	}
	for _, tc := range []struct {
		name  string
		renew func(n int64) error
	}{
		{"every renewal fails alike", func(int64) error { return errStore }},
		{"the errors alternate", func(n int64) error { return errs[n%int64(len(errs))] }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
					time.Sleep(latency)
					return s.Backend.Acquire(ctx, workID, holderID, ttl)
				}
				s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error { return tc.renew(s.Renewals.Load()) }
				start := time.Now()
				work := make(chan context.Context, 1)
				runner := newRunner(t, worker.RunnerConfig{
					Lease: newLease(t, s, worklease.Config{TTL: ttl, HolderID: "a"}),
					WorkFn: func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
						work <- ctx
						awaitEnd(ctx)
						if took := time.Since(start); took != ttl {
							t.Errorf("the work was told after %v, want at the end of its window", took)
						}
						if cause := context.Cause(ctx); !errors.Is(cause, worklease.ErrLeaseWindowExhausted) {
							t.Errorf("the cause is %v", cause)
						}
						time.Sleep(10 * ttl)
						return []byte("stale"), errWork
					},
				})
				ended := make(chan error, 1)
				go func() { ended <- runner.Run(t.Context(), workID) }()
				workCtx := <-work

				rival := leaseOf(t, s.Backend, "b")
				token, err := rival.Acquire(t.Context(), workID, worklease.WithWaitForLease(), worklease.WithPollInterval(time.Millisecond))
				if err != nil {
					t.Fatal(err)
				}
				if workCtx.Err() == nil {
					t.Error("another holder has begun while the work was not told to stop")
				}
				if took := time.Since(start); took > ttl+latency+2*time.Millisecond {
					t.Errorf("the lease was free after %v", took)
				}
				_, stop := rival.StartRenewal(t.Context(), token)
				defer stop()
				renewals := s.Renewals.Load()
				wantErr(t, <-ended, worklease.ErrLeaseWindowExhausted, errWork)
				if n := s.Renewals.Load(); n != renewals {
					t.Errorf("the lost lease was asked for %d times more", n-renewals)
				}
				found, err := rival.ReadCheckpoint(t.Context(), token)
				wantErr(t, err)
				wantFound(t, found, "", worklease.ExitExpired, "a")
			})
		})
	}
}

func TestWorkGoesOnThroughAFewFailedRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner, s := newHolder(t, lasting(2*ttl, []byte("new"), nil))
		s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
			if s.Renewals.Load() <= 2 {
				return errStore
			}
			return s.Backend.Renew(ctx, record, ttl)
		}
		wantErr(t, runner.Run(t.Context(), workID))
		wantFound(t, inherit(t, s), "new", worklease.ExitFinished, "a")
	})
}

// The work may return before the timer of its window has had its turn.
func TestWorkThatReturnsAsItsWindowClosesHasLostItsLease(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			runner, s := newHolder(t, lasting(ttl, []byte("stale"), nil))
			s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error { return errStore }
			wantErr(t, runner.Run(t.Context(), workID), worklease.ErrLeaseWindowExhausted)
			wantFound(t, inherit(t, s), "", worklease.ExitExpired, "a")
		})
	}
}
