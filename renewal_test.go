package worklease_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
)

func TestRenewalIsDueEveryHalfTTLWithJitter(t *testing.T) {
	for name, tc := range map[string]struct {
		opts     []worklease.RenewalOption
		interval time.Duration
	}{
		"default":           {nil, 5 * time.Second},
		"set":               {[]worklease.RenewalOption{worklease.WithRenewalInterval(2 * time.Second)}, 2 * time.Second},
		"above half":        {[]worklease.RenewalOption{worklease.WithRenewalInterval(8 * time.Second)}, 8 * time.Second},
		"the TTL":           {[]worklease.RenewalOption{worklease.WithRenewalInterval(10 * time.Second)}, 5 * time.Second},
		"above the TTL":     {[]worklease.RenewalOption{worklease.WithRenewalInterval(math.MaxInt64)}, 5 * time.Second},
		"zero":              {[]worklease.RenewalOption{worklease.WithRenewalInterval(0)}, 5 * time.Second},
		"negative":          {[]worklease.RenewalOption{worklease.WithRenewalInterval(-time.Second)}, 5 * time.Second},
		"nil in the list":   {[]worklease.RenewalOption{nil, worklease.WithRenewalInterval(time.Second), nil}, time.Second},
		"a nanosecond":      {[]worklease.RenewalOption{worklease.WithRenewalInterval(1)}, time.Millisecond},
		"the last one wins": {[]worklease.RenewalOption{worklease.WithRenewalInterval(time.Second), worklease.WithRenewalInterval(3 * time.Second)}, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				seen := watchRenewals(s, pass)
				lease := newLease(t, s, "a", 10*time.Second)
				token := acquire(t, lease, "w")
				acquired := time.Now()
				renewCtx, stop := lease.StartRenewal(t.Context(), token, tc.opts...)
				time.Sleep(20 * tc.interval)
				stop()
				synctest.Wait()

				mustBeAlive(t, renewCtx)
				gaps := gaps(append([]time.Time{acquired}, seen.began()...))
				if len(gaps) < 19 {
					t.Errorf("%d renewals in 20 intervals", len(gaps))
				}
				for _, gap := range gaps {
					if gap < tc.interval*85/100 || gap > tc.interval {
						t.Errorf("a renewal %v after the last one, with an interval of %v", gap, tc.interval)
					}
				}
				if slices.Min(gaps) == slices.Max(gaps) {
					t.Error("there is no jitter")
				}
			})
		})
	}
}

func TestLeasesTakenTogetherDoNotRenewTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		seen := watchRenewals(s, pass)
		lease := newLease(t, s, "a", 10*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		const n = 100
		for i := range n {
			lease.StartRenewal(ctx, acquire(t, lease, string(rune('A'+i))))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(seen.began()) != n {
			t.Fatalf("%d renewals of %d leases", len(seen.began()), n)
		}
		if spread := seen.began()[n-1].Sub(seen.began()[0]); spread < 500*time.Millisecond {
			t.Errorf("all renewals fall within %v", spread)
		}
	})
}

func TestWindowClosesWhileRenewHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		s := newStore()
		seen := watchRenewals(s, func(context.Context, int, func() error) error {
			<-hung // as a driver does that does not know of contexts
			return errStore
		})
		lease := newLease(t, s, "a", 3*time.Second)
		start := time.Now()
		renewCtx, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"))
		defer stop()

		mustEnd(t, renewCtx, start.Add(3*time.Second), worklease.ErrLeaseWindowExhausted)
		if n := seen.mostAtATime(); n != 3 {
			t.Errorf("%d attempts at a time without an answer, want 3", n)
		}
		if len(seen.began()) != 3 {
			t.Errorf("%d attempts, want 3", len(seen.began()))
		}
		close(hung)
	})
}

func TestWindowClosesWithoutAnyAnswerAfterTheLastSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		var lastGood time.Time
		watchRenewals(s, func(ctx context.Context, n int, pass func() error) error {
			if n <= 3 {
				lastGood = time.Now()
				return pass()
			}
			<-ctx.Done()
			return ctx.Err()
		})
		lease := newLease(t, s, "a", 3*time.Second)
		renewCtx, _ := lease.StartRenewal(t.Context(), acquire(t, lease, "w"))
		<-renewCtx.Done()
		mustEnd(t, renewCtx, lastGood.Add(3*time.Second), worklease.ErrLeaseWindowExhausted)
		mustNotMatch(t, context.Cause(renewCtx), context.Canceled, worklease.ErrFenced, worklease.ErrLeaseExpired)
	})
}

func TestStopRenewalReturnsAtOnceAndLeavesTheContextToTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		s := newStore()
		seen := watchRenewals(s, func(context.Context, int, func() error) error {
			<-hung
			return nil
		})
		lease := newLease(t, s, "a", 10*time.Second)
		acquired := time.Now()
		renewCtx, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"))
		time.Sleep(5 * time.Second) // an attempt hangs
		synctest.Wait()
		if len(seen.began()) != 1 {
			t.Fatal("no attempt is in flight")
		}

		before := time.Now()
		for range 10 {
			go stop()
		}
		stop()
		stop()
		if took := time.Since(before); took != 0 {
			t.Errorf("stopRenewal waits for %v", took)
		}
		synctest.Wait()
		mustBeAlive(t, renewCtx)
		if cause := context.Cause(renewCtx); cause != nil {
			t.Errorf("cause %v, want nil", cause)
		}
		windowOf(t, renewCtx)
		mustEnd(t, renewCtx, acquired.Add(10*time.Second), worklease.ErrLeaseWindowExhausted)
		if len(seen.began()) != 1 {
			t.Errorf("%d attempts, although renewal was stopped after the first", len(seen.began()))
		}
		close(hung)
	})
}

func TestRenewCtxEndsWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		seen := watchRenewals(s, pass)
		lease := newLease(t, s, "a", 10*time.Second)
		reason := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		renewCtx, stop := lease.StartRenewal(ctx, acquire(t, lease, "w"))
		defer stop()
		time.Sleep(12 * time.Second)
		cancel(reason)
		mustEnd(t, renewCtx, time.Now(), reason)
		if _, ok := worklease.LeaseWindow(renewCtx); ok {
			t.Error("there is a window although renewCtx has ended")
		}
		n := len(seen.began())
		time.Sleep(time.Minute)
		if len(seen.began()) != n {
			t.Error("the lease is renewed although renewCtx has ended")
		}
	})
}

func TestVerdictsOfTheStoreEndTheContextAtOnce(t *testing.T) {
	lost := []error{worklease.ErrLeaseWindowExhausted, worklease.ErrLeaseExpired}
	for name, tc := range map[string]struct {
		verdict       error
		match, differ []error
	}{
		"fenced":  {worklease.ErrFenced, []error{worklease.ErrFenced}, lost},
		"expired": {worklease.ErrLeaseExpired, lost, []error{worklease.ErrFenced}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				seen := watchRenewals(s, func(context.Context, int, func() error) error { return tc.verdict })
				lease := newLease(t, s, "a", 10*time.Second)
				token := acquire(t, lease, "w")
				renewCtx, _ := lease.StartRenewal(t.Context(), token)
				<-renewCtx.Done()
				mustEnd(t, renewCtx, seen.began()[0], tc.match...)
				mustNotMatch(t, context.Cause(renewCtx), tc.differ...)
				time.Sleep(time.Minute)
				if len(seen.began()) != 1 {
					t.Errorf("%d attempts after a verdict", len(seen.began()))
				}
			})
		})
		t.Run(name+" by an explicit call", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				s.OnCheckpoint = func(context.Context, backend.LeaseRecord, []byte, time.Duration) error { return tc.verdict }
				lease := newLease(t, s, "a", 10*time.Second)
				token := acquire(t, lease, "w")
				renewCtx, _ := lease.StartRenewal(t.Context(), token)
				mustMatch(t, lease.Checkpoint(t.Context(), token, nil), tc.verdict)
				mustEnd(t, renewCtx, time.Now(), tc.match...)

				again, _ := lease.StartRenewal(t.Context(), token)
				mustEnd(t, again, time.Now(), tc.match...)
			})
		})
	}
}

func TestWorkEndsBeforeAnotherHolderCanAcquire(t *testing.T) {
	faults := map[string]func(n int) error{
		"every renewal fails": func(int) error { return errStore },
		"errors of every kind in turn": func(n int) error {
			return []error{errStore, context.DeadlineExceeded, context.Canceled, worklease.ErrLeaseHeld}[n%4]
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				watchRenewals(s, func(_ context.Context, n int, _ func() error) error { return fault(n) })
				a, b := newLease(t, s, "a", 2*time.Second), newLease(t, s, "b", 2*time.Second)
				renewCtx, _ := a.StartRenewal(t.Context(), acquire(t, a, "w"))

				token, err := b.Acquire(t.Context(), "w", worklease.WithWaitForLease(), worklease.WithPollInterval(time.Millisecond))
				if err != nil {
					t.Fatal(err)
				}
				if renewCtx.Err() == nil {
					t.Fatal("b holds the lease, and the work of a has not ended")
				}
				mustMatch(t, context.Cause(renewCtx), worklease.ErrLeaseWindowExhausted)
				found, err := b.ReadCheckpoint(t.Context(), token)
				if err != nil || found.PrevExit != worklease.ExitExpired || found.PrevHolderID != "a" {
					t.Errorf("b finds %+v, %v", found, err)
				}
				time.Sleep(20 * time.Second)
				if _, ok := worklease.LeaseWindow(renewCtx); ok {
					t.Error("a believes in its lease again")
				}
			})
		})
	}
}

func TestQuickCyclesLeaveTheNextTenureRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := newLease(t, memory.New(), "a", 10*time.Second)
		for range 300 {
			token := acquire(t, lease, "w")
			_, stop := lease.StartRenewal(t.Context(), token)
			stop()
			if err := lease.Release(t.Context(), token, worklease.ExitFinished); err != nil {
				t.Fatal(err)
			}
		}
		renewCtx, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"))
		time.Sleep(30 * time.Second)
		mustBeAlive(t, renewCtx)
		stop()
	})
}

func TestShortestLeaseIsRenewedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := newLease(t, memory.New(), "a", time.Millisecond)
		renewCtx, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"), worklease.WithRenewalInterval(1))
		time.Sleep(100 * time.Millisecond)
		mustBeAlive(t, renewCtx)
		stop()
	})
}
