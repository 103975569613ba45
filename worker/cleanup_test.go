package worker_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/worker"
)

const cleanup = 2 * time.Second

// A store that does not answer holds up Run for the cleanup timeout, whether it knows of contexts or not.
// If only the save hangs, the time that is kept for the release makes room for the successor.
func TestCleanupEndsOnTheClock(t *testing.T) {
	type answer func(ctx context.Context, hung <-chan struct{}) error
	deaf := func(_ context.Context, hung <-chan struct{}) error { <-hung; return nil }
	hears := func(ctx context.Context, _ <-chan struct{}) error { awaitEnd(ctx); return ctx.Err() }
	for _, tc := range []struct {
		name          string
		save, release answer // nil: done at once
		work          error
		timeout, took time.Duration
		state         string
		exit          worklease.ExitMode
		errs          []error
	}{
		{
			name: "the final checkpoint hangs, ignoring ctx", save: deaf, timeout: cleanup, took: cleanup * 3 / 4, exit: worklease.ExitAbandoned,
			errs: []error{context.DeadlineExceeded},
		}, {
			name: "the final checkpoint hangs, ignoring ctx, after an error", save: deaf, work: errWork, timeout: cleanup,
			took: cleanup * 3 / 4, exit: worklease.ExitAbandoned,
			errs: []error{context.DeadlineExceeded, errWork},
		}, {
			name: "the final checkpoint hangs until ctx ends", save: hears, timeout: cleanup, took: cleanup * 3 / 4, exit: worklease.ExitAbandoned,
			errs: []error{context.DeadlineExceeded},
		}, {
			name: "the release hangs, ignoring ctx", release: deaf, timeout: cleanup, took: cleanup, state: "new", exit: worklease.ExitExpired,
			errs: []error{context.DeadlineExceeded},
		}, {
			name: "the release hangs until ctx ends", release: hears, timeout: cleanup, took: cleanup, state: "new", exit: worklease.ExitExpired,
			errs: []error{context.DeadlineExceeded},
		}, {
			name: "the timeout is zero", save: deaf, timeout: 0, took: 3750 * time.Millisecond, exit: worklease.ExitAbandoned,
			errs: []error{context.DeadlineExceeded},
		}, {
			name: "the timeout is negative", save: deaf, timeout: math.MinInt64, took: 3750 * time.Millisecond, exit: worklease.ExitAbandoned,
			errs: []error{context.DeadlineExceeded},
		}, {
			name: "the timeout is as short as can be", save: deaf, timeout: 1, took: 1,
			errs: []error{context.DeadlineExceeded},
		}, {
			name: "both hang", save: deaf, release: deaf, timeout: cleanup, took: cleanup, exit: worklease.ExitExpired,
			errs: []error{context.DeadlineExceeded},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				hung := make(chan struct{})
				defer close(hung)
				if tc.save != nil {
					s.OnCheckpoint = func(ctx context.Context, _ backend.LeaseRecord, _ []byte, _ time.Duration) error {
						return tc.save(ctx, hung)
					}
				}
				if tc.release != nil {
					s.OnRelease = func(ctx context.Context, _ backend.LeaseRecord, _ backend.ExitMode) error {
						return tc.release(ctx, hung)
					}
				}
				runner := newRunner(t, worker.RunnerConfig{
					Lease: leaseOf(t, s, "a"), WorkFn: returning([]byte("new"), tc.work), CleanupTimeout: tc.timeout,
				})
				start := time.Now()
				wantErr(t, runner.Run(t.Context(), workID), tc.errs...)
				if took := time.Since(start); took != tc.took {
					t.Errorf("Run returned after %v, want %v", took, tc.took)
				}
				synctest.Wait()
				if tc.timeout == 1 {
					return // whether there was time for the release is not to be known
				}
				if n := s.Releases.Load(); n != 1 {
					t.Errorf("the store was asked to release %d times", n)
				}
				if tc.exit == worklease.ExitExpired {
					time.Sleep(ttl)
				}
				wantFound(t, inherit(t, s), tc.state, tc.exit, "a")
				wantRenewalOver(t, s)
			})
		})
	}
}

func TestCleanupTimeoutIsForBothStepsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnCheckpoint = func(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
			time.Sleep(cleanup / 2)
			return s.Backend.Checkpoint(ctx, record, state, ttl)
		}
		s.OnRelease = func(ctx context.Context, _ backend.LeaseRecord, _ backend.ExitMode) error {
			awaitEnd(ctx)
			return ctx.Err()
		}
		runner := newRunner(t, worker.RunnerConfig{
			Lease: leaseOf(t, s, "a"), WorkFn: returning([]byte("new"), nil), CleanupTimeout: cleanup,
		})
		start := time.Now()
		wantErr(t, runner.Run(t.Context(), workID), context.DeadlineExceeded)
		if took := time.Since(start); took != cleanup {
			t.Errorf("Run returned after %v, want %v", took, cleanup)
		}
	})
}

func TestCleanupMayLastForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnCheckpoint = func(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
			time.Sleep(24 * time.Hour)
			return s.Backend.Checkpoint(ctx, record, state, ttl)
		}
		runner := newRunner(t, worker.RunnerConfig{
			Lease: leaseOf(t, s, "a"), WorkFn: returning([]byte("new"), nil), CleanupTimeout: math.MaxInt64,
		})
		wantErr(t, runner.Run(t.Context(), workID))
		wantFound(t, inherit(t, s), "new", worklease.ExitFinished, "a")
	})
}

// Run gives up on a call that may still arrive. It changes nothing after the release, which says that
// the work was not done.
func TestFinalCheckpointThatArrivesAfterTheReleaseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnCheckpoint = func(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
			time.Sleep(2 * cleanup)
			return s.Backend.Checkpoint(context.WithoutCancel(ctx), record, state, ttl)
		}
		runner := newRunner(t, worker.RunnerConfig{
			Lease: leaseOf(t, s, "a"), WorkFn: returning([]byte("new"), nil), CleanupTimeout: cleanup,
		})
		wantErr(t, runner.Run(t.Context(), workID), context.DeadlineExceeded)
		time.Sleep(2*cleanup + ttl)
		wantFound(t, inherit(t, s), "", worklease.ExitAbandoned, "a")
	})
}

// An answer in the last moment counts or does not, but success is never reported without it.
func TestReleaseAnsweredInTheLastMoment(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			var answered atomic.Bool
			s.OnRelease = func(_ context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
				time.Sleep(cleanup)
				defer answered.Store(true)
				return s.Backend.Release(context.Background(), record, mode)
			}
			runner := newRunner(t, worker.RunnerConfig{
				Lease: leaseOf(t, s, "a"), WorkFn: returning(nil, nil), CleanupTimeout: cleanup,
			})
			if err := runner.Run(t.Context(), workID); err == nil && !answered.Load() {
				t.Error("success before the store has answered")
			} else if err != nil {
				wantErr(t, err, context.DeadlineExceeded)
			}
			synctest.Wait()
			wantFound(t, inherit(t, s), "", worklease.ExitFinished, "a")
		})
	}
}

type valueKey struct{}

func TestCleanupHasAContextOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(context.WithValue(t.Context(), valueKey{}, "trace"), time.Second, errShutdown)
		defer cancel()
		check := func(what string, ctx context.Context, left time.Duration) {
			deadline, ok := ctx.Deadline()
			if ctx.Err() != nil || !ok || time.Until(deadline) != left || ctx.Value(valueKey{}) != "trace" {
				t.Errorf("%s: context ended: %v, deadline in %v, value %v", what, ctx.Err(), time.Until(deadline), ctx.Value(valueKey{}))
			}
		}
		s := newStore()
		s.OnCheckpoint = func(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
			check("final checkpoint", ctx, cleanup*3/4)
			return s.Backend.Checkpoint(ctx, record, state, ttl)
		}
		s.OnRelease = func(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
			check("release", ctx, cleanup)
			return s.Backend.Release(ctx, record, mode)
		}
		runner := newRunner(t, worker.RunnerConfig{
			Lease: leaseOf(t, s, "a"), CleanupTimeout: cleanup,
			WorkFn: func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
				if _, ok := ctx.Deadline(); ok || ctx.Value(valueKey{}) != "trace" {
					t.Errorf("the work's context has a deadline: %v, value %v", ok, ctx.Value(valueKey{}))
				}
				awaitEnd(ctx)
				return []byte("new"), context.Cause(ctx)
			},
		})
		wantErr(t, runner.Run(ctx, workID), errShutdown)
		wantFound(t, inherit(t, s), "new", worklease.ExitAbandoned, "a")
	})
}
