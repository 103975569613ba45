package worklease_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
)

// attempts notes when each Renew of a store begins, and lets answer decide what becomes of it.
type attempts struct {
	mu               sync.Mutex
	times            []time.Time
	inFlight, atMost int
}

func watchRenewals(s *faulty.Store, answer func(ctx context.Context, n int, pass func() error) error) *attempts {
	seen := &attempts{}
	s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
		n := seen.begin()
		defer seen.end()
		return answer(ctx, n, func() error { return s.Backend.Renew(ctx, record, ttl) })
	}
	return seen
}

func (a *attempts) begin() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times = append(a.times, time.Now())
	a.inFlight++
	a.atMost = max(a.atMost, a.inFlight)
	return len(a.times)
}

func (a *attempts) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inFlight--
}

func (a *attempts) began() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.times)
}

func (a *attempts) mostAtATime() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.atMost
}

func gaps(times []time.Time) (gaps []time.Duration) {
	for i := 1; i < len(times); i++ {
		gaps = append(gaps, times[i].Sub(times[i-1]))
	}
	return gaps
}

func pass(_ context.Context, _ int, pass func() error) error { return pass() }

func TestStuckAttemptIsGivenUpAndTheNextOneIsMadeInsideTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		var firstEnded time.Time
		seen := watchRenewals(s, func(ctx context.Context, n int, pass func() error) error {
			if n > 1 {
				return pass()
			}
			<-ctx.Done()
			firstEnded = time.Now()
			return ctx.Err()
		})
		lease := newLease(t, s, "a", 10*time.Second)
		acquired := time.Now()
		renewCtx, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"))
		time.Sleep(9 * time.Second)
		synctest.Wait()

		mustBeAlive(t, renewCtx)
		left := 10*time.Second - seen.began()[0].Sub(acquired)
		if gap := gaps(seen.began())[0]; gap != left/3 {
			t.Errorf("the second attempt is made after %v, want a third of the %v left", gap, left)
		}
		if !firstEnded.Equal(seen.began()[1]) {
			t.Errorf("the first attempt is in flight until %v, although the second succeeded at %v", firstEnded, seen.began()[1])
		}
		if got, want := windowOf(t, renewCtx), 10*time.Second-time.Since(seen.began()[1]); got != want {
			t.Errorf("the window closes in %v, want %v", got, want)
		}
		stop()
	})
}

func TestLateSuccessOfAnAttemptThatWasGivenUpEndsTheRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		attempts := watchRenewals(s, func(ctx context.Context, n int, pass func() error) error {
			switch n {
			case 1:
				time.Sleep(2 * time.Second) // the limit is a third of five to six seconds
				return pass()
			case 2:
				<-ctx.Done()
				return ctx.Err()
			}
			return pass()
		})
		seen := &recorder{}
		lease := newObserved(t, s, "a", 10*time.Second, seen)
		renewCtx, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"))
		time.Sleep(11 * time.Second)
		stop()
		synctest.Wait()
		mustBeAlive(t, renewCtx)
		began := attempts.began()
		if len(began) != 3 {
			t.Fatalf("%d attempts", len(began))
		}
		if wait := began[2].Sub(began[0]); wait < 4250*time.Millisecond || wait > 5*time.Second {
			t.Errorf("the next renewal begins %v after the late success began", wait)
		}
		events := eventsOf[worklease.RenewEvent](seen)
		if last := events[len(events)-1]; last.Attempt != 1 || last.Err != nil {
			t.Errorf("the next renewal begins with attempt %d, %v", last.Attempt, last.Err)
		}
	})
}

func TestCheckpointEndsARenewalThatFailsAndFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		attempts := watchRenewals(s, func(context.Context, int, func() error) error { return errStore })
		lease := newLease(t, s, "a", 10*time.Second)
		token := acquire(t, lease, "w")
		_, stop := lease.StartRenewal(t.Context(), token)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		before, saved := len(attempts.began()), time.Now()
		if err := lease.Checkpoint(t.Context(), token, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if next := attempts.began()[before]; next.Sub(saved) < 4250*time.Millisecond {
			t.Errorf("the lease is renewed %v after it was saved", next.Sub(saved))
		}
		stop()
	})
}

func TestAttemptsWithoutAnAnswerAreReplacedUntilTheWindowCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		seen := watchRenewals(s, func(ctx context.Context, _ int, _ func() error) error {
			<-ctx.Done()
			return ctx.Err()
		})
		lease := newLease(t, s, "a", 10*time.Second)
		start := time.Now()
		renewCtx, _ := lease.StartRenewal(t.Context(), acquire(t, lease, "w"))
		mustEnd(t, renewCtx, start.Add(10*time.Second), worklease.ErrLeaseWindowExhausted)
		if n := seen.mostAtATime(); n > 3 {
			t.Errorf("%d attempts at a time without an answer", n)
		}
		if n := len(seen.began()); n < 6 || n > 14 {
			t.Errorf("%d attempts in one window", n)
		}
	})
}

func TestSlowStoreCostsNoLease(t *testing.T) {
	for name, latency := range map[string]func() time.Duration{
		"100 to 600 ms": func() time.Duration { return time.Duration(100+rand.IntN(500)) * time.Millisecond },
		"600 ms":        func() time.Duration { return 600 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				seen := watchRenewals(s, func(ctx context.Context, _ int, pass func() error) error {
					select {
					case <-time.After(latency()):
						return pass()
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				lease := newLease(t, s, "a", 2*time.Second)
				renewCtx, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"), worklease.WithRenewalInterval(2*time.Second))
				time.Sleep(2 * time.Minute)
				mustBeAlive(t, renewCtx)
				if n := seen.mostAtATime(); n > 3 {
					t.Errorf("%d attempts at a time without an answer", n)
				}
				stop()
			})
		})
	}
}

func TestFailedAttemptsAreRetriedWithBackoffInsideTheWindow(t *testing.T) {
	for name, tc := range map[string]struct {
		opts         []worklease.RenewalOption
		initial, max time.Duration
		jitter       float64
	}{
		"default":               {nil, 100 * time.Millisecond, 5 * time.Second, 0.2},
		"set":                   {backoff(time.Second, 3*time.Second, 0.5), time.Second, 3 * time.Second, 0.5},
		"no jitter":             {backoff(time.Second, 3*time.Second, 0), time.Second, 3 * time.Second, 0},
		"zero initial":          {backoff(0, time.Second, 0), time.Millisecond, time.Second, 0},
		"negative initial":      {backoff(-1, time.Second, 0), time.Millisecond, time.Second, 0},
		"negative":              {backoff(-1, -1, -1), time.Millisecond, time.Millisecond, 0},
		"initial above maximum": {backoff(time.Minute, time.Second, 0), time.Second, time.Second, 0},
		"jitter above 1":        {backoff(time.Second, time.Second, 17), time.Second, time.Second, 1},
		"jitter not a number":   {backoff(time.Second, time.Second, math.NaN()), time.Second, time.Second, 0},
		"maximal":               {backoff(math.MaxInt64, math.MaxInt64, 1), math.MaxInt64, math.MaxInt64, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				seen := watchRenewals(s, func(context.Context, int, func() error) error { return errStore })
				lease := newLease(t, s, "a", 20*time.Second)
				start := time.Now()
				renewCtx, _ := lease.StartRenewal(t.Context(), acquire(t, lease, "w"), tc.opts...)
				mustEnd(t, renewCtx, start.Add(20*time.Second), worklease.ErrLeaseWindowExhausted)
				mustNotMatch(t, context.Cause(renewCtx), errStore)

				wait := tc.initial
				for i, gap := range gaps(seen.began()) {
					longest := wait + time.Duration(tc.jitter*float64(wait))
					if gap < wait || gap > longest {
						t.Errorf("attempt %d is made after %v, want %v to %v", i+2, gap, wait, longest)
					}
					wait = min(tc.max, 2*wait)
				}
				if want := tc.initial < 10*time.Second; (len(seen.began()) > 1) != want {
					t.Errorf("%d attempts", len(seen.began()))
				}
			})
		})
	}
}

func backoff(initial, maximum time.Duration, jitter float64) []worklease.RenewalOption {
	return []worklease.RenewalOption{worklease.WithRenewalBackoff(initial, maximum, jitter)}
}

func TestTwoFailedRenewalsDoNotInterruptTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		watchRenewals(s, func(_ context.Context, n int, pass func() error) error {
			if n <= 2 {
				return errStore
			}
			return pass()
		})
		seen := &recorder{}
		lease := newObserved(t, s, "a", 10*time.Second, seen)
		renewCtx, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"))
		time.Sleep(30 * time.Second)
		stop()
		synctest.Wait()

		mustBeAlive(t, renewCtx)
		var numbers []int
		failures := 0
		for _, e := range eventsOf[worklease.RenewEvent](seen) {
			numbers = append(numbers, e.Attempt)
			if e.Err != nil {
				failures++
				mustMatch(t, e.Err, errStore)
			}
		}
		if failures != 2 {
			t.Errorf("the observer saw %d errors, want 2", failures)
		}
		if !slices.Equal(numbers[:4], []int{1, 2, 3, 1}) {
			t.Errorf("attempts are numbered %v", numbers)
		}
		if left := windowOf(t, renewCtx); left < 5*time.Second {
			t.Errorf("the window closes in %v", left)
		}
	})
}

func TestBackoffBeginsAnewAfterASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		seen := watchRenewals(s, func(_ context.Context, n int, pass func() error) error {
			if n == 4 {
				return pass()
			}
			return errStore
		})
		lease := newLease(t, s, "a", time.Minute)
		_, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"), backoff(time.Second, time.Hour, 0)...)
		time.Sleep(70 * time.Second)
		stop()
		got := gaps(seen.began())
		got[3] = 0 // the wait for the next renewal
		if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 0, time.Second, 2 * time.Second}; !slices.Equal(got[:6], want) {
			t.Errorf("attempts follow each other after %v, want %v", got[:6], want)
		}
	})
}

func TestPauseAfterAFailureCountsFromItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		seen := watchRenewals(s, func(context.Context, int, func() error) error {
			time.Sleep(time.Second)
			return errStore
		})
		lease := newLease(t, s, "a", time.Minute)
		_, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"), backoff(time.Second, time.Second, 0)...)
		time.Sleep(40 * time.Second)
		stop()
		if gap := gaps(seen.began())[0]; gap != 2*time.Second {
			t.Errorf("the second attempt begins %v after the first, which took a second", gap)
		}
		synctest.Wait()
		time.Sleep(time.Second)
	})
}

func TestErrorOfAnAttemptThatWasGivenUpDoesNotDisturbTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		seen := watchRenewals(s, func(ctx context.Context, n int, pass func() error) error {
			if n == 1 {
				time.Sleep(7 * time.Second) // given up after 5 to 5.75 s
				return errStore
			}
			time.Sleep(3 * time.Second)
			return pass()
		})
		lease := newLease(t, s, "a", 30*time.Second)
		renewCtx, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"))
		time.Sleep(28 * time.Second)
		stop()
		mustBeAlive(t, renewCtx)
		if n := len(seen.began()); n != 2 {
			t.Errorf("%d attempts, although the second one succeeds", n)
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
	})
}

func TestAttemptsAreCancelledWhenNobodyWaitsForThem(t *testing.T) {
	type call struct {
		ctx context.Context
		end time.Time
	}
	observe := func(t *testing.T, after time.Duration, leave func(stop func())) (calls []*call, start time.Time) {
		var mu sync.Mutex
		s := newStore()
		watchRenewals(s, func(ctx context.Context, n int, pass func() error) error {
			c := &call{ctx: ctx}
			mu.Lock()
			calls = append(calls, c)
			mu.Unlock()
			<-ctx.Done()
			c.end = time.Now()
			return ctx.Err()
		})
		lease := newLease(t, s, "a", 30*time.Second)
		start = time.Now()
		_, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"))
		time.Sleep(after)
		leave(stop)
		synctest.Wait()
		return calls, start
	}
	t.Run("the oldest first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			calls, _ := observe(t, 30*time.Second, func(func()) {})
			for i := 1; i < len(calls); i++ {
				if calls[i].end.Before(calls[i-1].end) {
					t.Errorf("attempt %d ended before attempt %d", i+1, i)
				}
			}
			if len(calls) < 4 || !calls[0].end.Before(calls[2].end) {
				t.Errorf("%d attempts, none of which made room", len(calls))
			}
		})
	})
	t.Run("by stopRenewal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			calls, _ := observe(t, 16*time.Second, func(stop func()) { stop() })
			if len(calls) != 1 || calls[0].ctx.Err() == nil {
				t.Error("an attempt is in flight after stopRenewal")
			}
		})
	})
}

func TestContextOfAnAttemptEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last context.Context
		s := newStore()
		watchRenewals(s, func(ctx context.Context, _ int, pass func() error) error {
			last = ctx
			return pass()
		})
		lease := newLease(t, s, "a", 10*time.Second)
		_, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"))
		defer stop()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if last.Err() == nil {
			t.Error("what an attempt left under renewCtx stays for the tenure")
		}
	})
}
