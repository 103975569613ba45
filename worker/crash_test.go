package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/worker"
)

// successorOfACrash runs work that waits for the lease and returns what it found, and when.
func successorOfACrash(t *testing.T, s *faulty.Store) (found worklease.Checkpoint, at time.Time) {
	t.Helper()
	runner := newRunner(t, worker.RunnerConfig{
		Lease: leaseOf(t, s.Backend, "b"),
		WorkFn: func(_ context.Context, _ worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
			found, at = prior, time.Now()
			return nil, nil
		},
		AcquireOptions: []worklease.AcquireOption{
			worklease.WithWaitForLease(), worklease.WithPollInterval(50 * time.Millisecond),
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
	defer cancel()
	wantErr(t, runner.Run(ctx, workID))
	return found, at
}

func TestLeaseOfAHolderThatVanishedIsFreeAfterItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		if _, err := leaseOf(t, s.Backend, "a").Acquire(t.Context(), workID); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		found, at := successorOfACrash(t, s)
		wantFound(t, found, "", worklease.ExitExpired, "a")
		if took := at.Sub(start); took < ttl || took > ttl+60*time.Millisecond {
			t.Errorf("the lease was free after %v, want %v", took, ttl)
		}
	})
}

// What was saved while the work went on outlives a holder that gets to nothing else.
func TestMidWorkCheckpointsSurviveTheirHolder(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(ctx context.Context, cutOff func()) ([]byte, error)
	}{
		{"it panics", func(context.Context, func()) ([]byte, error) { panic("killed") }},
		{"it is cut off and never heard of again", func(ctx context.Context, cutOff func()) ([]byte, error) {
			cutOff()
			awaitEnd(ctx)
			return []byte("lost"), errWork
		}},
		{"it is cut off and does not notice", func(_ context.Context, cutOff func()) ([]byte, error) {
			cutOff()
			time.Sleep(20 * ttl)
			return []byte("lost"), nil
		}},
		{"it is cut off in its last step", func(_ context.Context, cutOff func()) ([]byte, error) {
			cutOff()
			return []byte("lost"), nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				var cut atomic.Bool
				s.OnCheckpoint = func(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
					if cut.Load() {
						return errStore
					}
					return s.Backend.Checkpoint(ctx, record, state, ttl)
				}
				s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
					if cut.Load() {
						return errStore
					}
					return s.Backend.Renew(ctx, record, ttl)
				}
				s.OnRelease = func(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
					if cut.Load() {
						return errStore
					}
					return s.Backend.Release(ctx, record, mode)
				}
				lease := leaseOf(t, s, "a")
				runner := newRunner(t, worker.RunnerConfig{
					Lease: lease,
					WorkFn: func(ctx context.Context, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
						for step := 1; step <= 10; step++ {
							time.Sleep(time.Second)
							if err := lease.Checkpoint(ctx, token, fmt.Append(nil, step)); err != nil {
								return nil, err
							}
						}
						return tc.end(ctx, func() { cut.Store(true) })
					},
				})
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					if err := runner.Run(t.Context(), workID); err == nil {
						t.Error("a holder that vanished reports success")
					}
				}()
				time.Sleep(10 * time.Second)
				synctest.Wait() // the tenth step is saved
				last := time.Now()
				found, at := successorOfACrash(t, s)
				wantFound(t, found, "10", worklease.ExitExpired, "a")
				if took := at.Sub(last); took < ttl || took > ttl+60*time.Millisecond {
					t.Errorf("the lease was free %v after the last checkpoint, want %v", took, ttl)
				}
				<-ended
			})
		})
	}
}
