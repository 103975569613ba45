package leader_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/leader"
)

func TestOnLostComesAtTheMomentOfTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnRenew = renewFails
		story := newStory()
		err := leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, story.told(leader.Config{}), func(ctx context.Context) error {
			awaitEnd(ctx)
			story.add("told to stop")
			time.Sleep(3 * time.Second)
			story.add("drained")
			return errWork
		})
		wantErr(t, err, errWork, worklease.ErrLeaseWindowExhausted)
		if len(story.events) == 4 && story.events[1] == "told to stop at 10s" { // they come together
			story.events[1], story.events[2] = story.events[2], story.events[1]
		}
		story.want(t, "elected at 0s", "lost at 10s", "told to stop at 10s", "drained at 13s")
	})
}

func TestOnLostIsNotForTheEndOfCtx(t *testing.T) {
	// Also not if the cause that the caller gives looks like a loss, as in an election within a term.
	for _, cause := range []error{errShutdown, worklease.ErrLeaseWindowExhausted} {
		synctest.Test(t, func(t *testing.T) {
			story := newStory()
			ctx, cancel := context.WithCancelCause(t.Context())
			cfg := story.told(leader.Config{})
			err := leader.Elect(ctx, leaseOf(t, newStore(), "a"), workID, cfg, func(ctx context.Context) error {
				cancel(cause)
				awaitEnd(ctx)
				return errWork
			})
			wantErr(t, err, errWork)
			story.want(t, "elected at 0s")
		})
	}
}

// The first may still say that it leads while another one asks for the lease, but not once that one can
// have it.
func TestOnLostComesBeforeAnotherCanLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnRenew = renewFails
		var leads atomic.Bool
		var lost atomic.Int64
		done := make(chan error)
		go func() {
			done <- leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, leader.Config{
				OnElected: func(context.Context, worklease.Token) { leads.Store(true) },
				OnLost: func(context.Context, worklease.Token) {
					leads.Store(false)
					lost.Add(1)
				},
			}, func(ctx context.Context) error {
				awaitEnd(ctx)
				time.Sleep(time.Hour)
				return ctx.Err()
			})
		}()
		synctest.Wait()
		other := leaseOf(t, s.Backend, "b")
		for {
			_, err := other.Acquire(t.Context(), workID)
			if err == nil {
				break
			}
			wantErr(t, err, worklease.ErrLeaseHeld)
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if leads.Load() {
			t.Error("two leaders")
		}
		wantErr(t, <-done, worklease.ErrLeaseWindowExhausted, context.Canceled)
		if n := lost.Load(); n != 1 {
			t.Errorf("OnLost was called %d times", n)
		}
	})
}

func TestSlowCallbacksDelayNeitherRenewalNorTheWindow(t *testing.T) {
	const slow = 5 * ttl
	t.Run("OnElected", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			err := leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, leader.Config{
				OnElected: func(context.Context, worklease.Token) { time.Sleep(slow) },
			}, func(ctx context.Context) error {
				if _, ok := worklease.LeaseWindow(ctx); !ok || ctx.Err() != nil {
					t.Error("the lease is lost")
				}
				return nil
			})
			wantErr(t, err)
			if s.Renewals.Load() == 0 {
				t.Error("the lease was not renewed")
			}
		})
	})
	t.Run("OnElected, while the store fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			s.OnRenew = renewFails
			story := newStory()
			cfg := story.told(leader.Config{})
			elected := cfg.OnElected
			cfg.OnElected = func(ctx context.Context, token worklease.Token) {
				elected(ctx, token)
				time.Sleep(slow)
			}
			err := leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, cfg, neverCalled(t))
			wantErr(t, err, worklease.ErrLeaseWindowExhausted)
			story.want(t, "elected at 0s", "lost at 10s")
		})
	})
	t.Run("OnElected, while ctx ends and then the store fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			s.OnRenew = renewFails
			story := newStory()
			ctx, cancel := context.WithCancelCause(t.Context())
			cfg := story.told(leader.Config{})
			elected := cfg.OnElected
			cfg.OnElected = func(ctx context.Context, token worklease.Token) {
				elected(ctx, token)
				cancel(errShutdown)
				time.Sleep(slow)
			}
			err := leader.Elect(ctx, leaseOf(t, s, "a"), workID, cfg, neverCalled(t))
			wantErr(t, err, worklease.ErrLeaseWindowExhausted)
			story.want(t, "elected at 0s", "lost at 10s")
		})
	})
	t.Run("OnLost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			s.OnRenew = renewFails
			story := newStory()
			err := leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, leader.Config{
				OnLost: func(context.Context, worklease.Token) { time.Sleep(slow) },
			}, func(ctx context.Context) error {
				awaitEnd(ctx)
				story.add("told to stop")
				return nil
			})
			story.add("returned")
			wantErr(t, err, worklease.ErrLeaseWindowExhausted)
			story.want(t, "told to stop at 10s", "returned at 1m0s")
		})
	})
	t.Run("OnRelinquished", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			err := leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, leader.Config{
				OnRelinquished: func(context.Context, worklease.Token) {
					if got := exitFound(t, s); got != worklease.ExitFinished { // the lease is free already
						t.Errorf("the successor finds %v", got)
					}
					time.Sleep(slow)
				},
			}, returns(nil))
			wantErr(t, err)
		})
	})
}

type key struct{}

func TestCallbacksGetTheCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		calls := 0
		callback := func(got context.Context, _ worklease.Token) {
			if calls++; got != ctx {
				t.Errorf("a callback got %v", got)
			}
		}
		s := newStore()
		cfg := leader.Config{OnElected: callback, OnLost: callback, OnRelinquished: callback}
		wantErr(t, leader.Elect(ctx, leaseOf(t, s, "a"), workID, cfg, func(context.Context) error {
			cancel()
			return nil
		}))
		if calls != 2 {
			t.Errorf("%d callbacks", calls)
		}
	})
}

// panicOf returns what f panics with.
func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

func TestPanicsGoOnAndLeaveNothingRunning(t *testing.T) {
	value := new(int)
	callback := func(context.Context, worklease.Token) { panic(value) }
	for _, tc := range []struct {
		name  string
		fault func(context.Context, backend.LeaseRecord, time.Duration) error
		cfg   leader.Config
		fn    func(context.Context) error
		exit  worklease.ExitMode
	}{
		{name: "fn", fn: func(context.Context) error { panic(value) }, exit: worklease.ExitExpired},
		{name: "OnElected", cfg: leader.Config{OnElected: callback}, fn: neverCalled(t), exit: worklease.ExitExpired},
		{name: "OnRelinquished", cfg: leader.Config{OnRelinquished: callback}, fn: returns(nil), exit: worklease.ExitFinished},
		{name: "OnLost", cfg: leader.Config{OnLost: callback}, fault: renewFails, exit: worklease.ExitExpired, fn: func(ctx context.Context) error {
			awaitEnd(ctx)
			time.Sleep(time.Second)
			return nil
		}},
		{name: "OnLost after the release", cfg: leader.Config{OnLost: callback}, fn: returns(worklease.ErrFenced), exit: worklease.ExitExpired},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, stand := range map[string]func(context.Context, worklease.Lease, string, leader.Config, func(context.Context) error) error{
				"Elect": leader.Elect, "Run": leader.Run,
			} {
				synctest.Test(t, func(t *testing.T) {
					s := newStore()
					s.OnRenew = tc.fault
					var health leader.Health
					tc.cfg.Health = &health
					got := panicOf(func() {
						err := stand(t.Context(), leaseOf(t, s, "a"), workID, tc.cfg, tc.fn)
						t.Errorf("%s returned %v", name, err)
					})
					if got != value {
						t.Errorf("%s: recovered %v, want the very value", name, got)
					}
					renewals := s.Renewals.Load()
					time.Sleep(ttl)
					if got := exitFound(t, s); got != tc.exit {
						t.Errorf("the successor finds %v, want %v", got, tc.exit)
					}
					if n := s.Renewals.Load(); n != renewals {
						t.Errorf("renewal goes on: %d calls", n-renewals)
					}
					if err := health.Check(0); err != nil {
						t.Errorf("health: %v", err)
					}
				})
			}
		})
	}
}

func TestGoexitOfTheFunctionEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		returned, ended := false, make(chan struct{})
		go func() {
			defer close(ended)
			leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, leader.Config{}, func(context.Context) error {
				runtime.Goexit()
				return nil
			})
			returned = true
		}()
		<-ended
		if returned {
			t.Error("Elect returned as if nothing had happened")
		}
		time.Sleep(ttl)
		if got := exitFound(t, s); got != worklease.ExitExpired {
			t.Errorf("the successor finds %v", got)
		}
	})
}

// Another holder may take the lease while fn runs: it is told so, and the term leaves no trace.
func TestFencedLeaderLeavesTheSuccessorAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		story := newStory()
		cfg := story.told(leader.Config{BackoffInterval: time.Hour})
		elected := cfg.OnElected
		cfg.OnElected = func(ctx context.Context, token worklease.Token) {
			elected(ctx, token)
			takeOver(t, s, token)
		}
		err := leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, cfg, func(ctx context.Context) error {
			awaitEnd(ctx)
			return context.Cause(ctx)
		})
		wantErr(t, err, worklease.ErrFenced)
		if took := time.Since(story.start); took > ttl/2 {
			t.Errorf("a fenced leader returned after %v, want at the first renewal and without a pause", took)
		}
		if s.Releases.Load() != 0 {
			t.Error("it released what it had lost")
		}
		if _, err := s.Backend.Acquire(t.Context(), workID, "third", ttl); err == nil {
			t.Error("the successor lost its lease")
		}
	})
}

// lostAtOnce is a Lease that is lost between the acquisition and the start of the renewal.
type lostAtOnce struct{ worklease.Lease }

func (lostAtOnce) StartRenewal(ctx context.Context, _ worklease.Token, _ ...worklease.RenewalOption) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(worklease.ErrLeaseWindowExhausted)
	return ctx, func() {}
}

func TestNoCallbackOfATermThatNeverBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		story := newStory()
		lease := lostAtOnce{leaseOf(t, newStore(), "a")}
		err := leader.Elect(t.Context(), lease, workID, story.told(leader.Config{}), neverCalled(t))
		wantErr(t, err, worklease.ErrLeaseWindowExhausted)
		story.want(t)
	})
}
