package pool_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/pool"
)

// attempts is when a store was asked for leases.
type attempts struct {
	mu   sync.Mutex
	byID map[string][]time.Duration
}

// watchAttempts has every Acquire of s take for answer.
func watchAttempts(s *faulty.Store, answer time.Duration) *attempts {
	a := &attempts{byID: map[string][]time.Duration{}}
	start := time.Now()
	s.OnAcquire = func(ctx context.Context, id, holder string, ttl time.Duration) (backend.LeaseRecord, error) {
		a.mu.Lock()
		a.byID[id] = append(a.byID[id], time.Since(start))
		a.mu.Unlock()
		time.Sleep(answer)
		return s.Backend.Acquire(ctx, id, holder, ttl)
	}
	return a
}

// wantSpread checks that every tenth of interval in [from, to) has a tenth of what comes in an interval, or
// a little less, since the waits are longer: least of it.
func (a *attempts) wantSpread(t *testing.T, interval, from, to time.Duration, least float64) {
	t.Helper()
	var all []time.Duration
	for _, times := range a.byID {
		all = append(all, times...)
	}
	slices.Sort(all)
	even := float64(len(a.byID)) / 10
	for at := from; at+interval/10 <= to; at += interval / 20 {
		lo, _ := slices.BinarySearch(all, at)
		hi, _ := slices.BinarySearch(all, at+interval/10)
		if n := float64(hi - lo); n < even*least || n > even*1.05 {
			t.Errorf("from %v on there are %v attempts in %v, want about %v", at, n, interval/10, even)
		}
	}
}

// wantWaits checks that the attempts of each slot are an interval and up to 20 % apart, after the answer.
func (a *attempts) wantWaits(t *testing.T, interval, answer time.Duration) {
	t.Helper()
	for id, times := range a.byID {
		for i := 1; i < len(times); i++ {
			if wait := times[i] - times[i-1] - answer; wait < interval || wait > interval+interval/5 {
				t.Fatalf("%s waited for %v, want %v to %v", id, wait, interval, interval+interval/5)
			}
		}
	}
}

func TestAttemptsOfIdleSlotsAreSpreadEvenly(t *testing.T) {
	for _, tc := range []struct {
		name             string
		slots            int
		interval, answer time.Duration
		from             time.Duration // when they are
		least            float64       // share of a tenth in any tenth
	}{
		{"from the first round", 1000, time.Second, 0, 0, 0.85},
		{"the store takes its time", 600, time.Second, 50 * time.Millisecond, 0, 0.85},
		{"the store takes longer than there is slack, which leaves gaps", 500, time.Second, 300 * time.Millisecond, 0, 0},
		{"a few slots", 100, time.Second, 0, 7 * time.Second, 0.85},
		{"a long interval", 500, time.Minute, 5 * time.Millisecond, 7 * time.Minute, 0.85},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				all := ids(tc.slots)
				holdAll(t, s.Backend, all...)
				seen := watchAttempts(s, tc.answer)
				to := 12 * tc.interval
				p := newPool(t, leaseOf(t, s, "a"), pool.Config{WorkIDs: all, IdleInterval: tc.interval}, returning(nil, nil))
				ctx, cancel := context.WithTimeout(t.Context(), to)
				defer cancel()
				if err := p.Run(ctx); err != nil {
					t.Error(err)
				}
				if len(seen.byID) != tc.slots {
					t.Errorf("%d slots made an attempt", len(seen.byID))
				}
				seen.wantSpread(t, tc.interval, tc.from, to, tc.least)
				seen.wantWaits(t, tc.interval, tc.answer)
			})
		})
	}
}

// However long the interval, what is free is begun at once, and not in one burst.
func TestFreeWorkIsBegunSoon(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			seen := watchAttempts(s, 0)
			all := ids(300)
			cfg := config(all...)
			cfg.IdleInterval = interval
			p := newPool(t, leaseOf(t, s, "a"), cfg, untilDone(nil, nil))
			time.AfterFunc(600*time.Millisecond, func() {
				if got := p.ActiveSlots(); !slices.Equal(got, all) {
					t.Errorf("with an interval of %v %d of %d slots are active", interval, len(got), len(all))
				}
			})
			runFor(t, p, time.Second)
			seen.wantSpread(t, 600*time.Millisecond, 0, 590*time.Millisecond, 0.95)
		})
	}
}

// Slots that lose their leases together drift apart again, and not as one crowd.
func TestSlotsThatLostTheirLeasesTogetherSpreadOut(t *testing.T) {
	const interval, slots = 30 * time.Second, 300
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		all := ids(slots)
		for _, id := range all { // all are in their places by the time that they get a lease
			if _, err := s.Backend.Acquire(t.Context(), id, "rival", 10*interval); err != nil {
				t.Fatal(err)
			}
		}
		seen := watchAttempts(s, 0)
		lost := make(chan struct{})
		p := newPool(t, leaseOf(t, s, "a"), pool.Config{WorkIDs: all, IdleInterval: interval},
			func(_ context.Context, _ string, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
				<-lost
				takeOver(t, s.Backend, token, 1000*time.Hour)
				return nil, nil
			})
		time.AfterFunc(12*interval, func() {
			if n := len(p.ActiveSlots()); n != slots {
				t.Errorf("%d of %d slots are active", n, slots)
			}
			close(lost)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 24*interval)
		defer cancel()
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
		seen.wantSpread(t, interval, 20*interval, 24*interval, 0.85)
		var drift []time.Duration
		for _, times := range seen.byID {
			drift = append(drift, times...)
		}
		slices.Sort(drift)
		from, _ := slices.BinarySearch(drift, 12*interval+interval/2)
		for i := from; i+slots/10 < len(drift); i++ {
			if d := drift[i+slots/10] - drift[i]; d < interval/100 {
				t.Fatalf("from %v on a tenth of all slots make an attempt in %v", drift[i], d)
			}
		}
	})
}

// Pools of one slot each, in many processes that were started together, are to spread too.
func TestSmallPoolsDoNotKeepStep(t *testing.T) {
	const interval = time.Second
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		all := ids(500)
		holdAll(t, s.Backend, all...)
		seen := watchAttempts(s, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var running sync.WaitGroup
		for _, id := range all {
			p := newPool(t, leaseOf(t, s, id), pool.Config{WorkIDs: []string{id}}, returning(nil, nil))
			running.Go(func() {
				if err := p.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
		seen.wantWaits(t, interval, 0)
		var last []time.Duration
		for _, times := range seen.byID {
			for _, at := range times {
				if at >= 10*time.Second && at < 10*time.Second+interval {
					last = append(last, at)
				}
			}
		}
		tenths := map[time.Duration]int{}
		for _, at := range last {
			tenths[at/(interval/10)]++
		}
		for tenth, n := range tenths {
			if n > 3*len(all)/10 { // at random: 45 or so, and a spread of 6
				t.Errorf("%d of %d attempts come in one tenth of the interval, from %v on", n, len(last), tenth*interval/10)
			}
		}
		if len(tenths) != 10 {
			t.Errorf("only %d tenths of the interval have attempts", len(tenths))
		}
	})
}

// Work that fails, or succeeds, at once is not tried more often than its interval says, and the end of
// ctx ends any wait.
func TestEveryWaitEndsWithTheContext(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  pool.Config
		err  error
		held bool
	}{
		{"idle", pool.Config{IdleInterval: time.Hour}, nil, true},
		{"after success", pool.Config{RerunInterval: time.Hour}, nil, false},
		{"after failure", pool.Config{BackoffInterval: time.Hour}, errWork, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				tc.cfg.WorkIDs = []string{workID}
				if tc.held {
					holdAll(t, s.Backend, workID)
				}
				runFor(t, newPool(t, leaseOf(t, s, "a"), tc.cfg, returning(nil, tc.err)), 30*time.Minute)
				if n := s.Acquires.Load(); n != int64(len(tc.cfg.WorkIDs)) && !tc.held || n > 2 {
					t.Errorf("there were %d attempts to acquire", n)
				}
			})
		})
	}
}

// Fenced means again at once. A slot whose stored lease vanishes each time is fenced each time, and must
// not spin.
func TestFencedAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		seen := watchAttempts(s, 0)
		p := newPool(t, leaseOf(t, s, "a"), config(workID), func(ctx context.Context, _ string, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			return nil, s.Backend.Forget(ctx, recordOf(token))
		})
		runFor(t, p, 3*backoff+time.Second)
		want := []time.Duration{0, 0, 0, backoff, 2 * backoff, 3 * backoff}
		if got := seen.byID[workID]; !slices.Equal(got, want) {
			t.Errorf("there were attempts at %v, want at %v", got, want)
		}
	})
}

// A slot that kept its lease for a while goes on at once however often it is fenced.
func TestFencedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		seen := watchAttempts(s, 0)
		p := newPool(t, leaseOf(t, s, "a"), config(workID), func(ctx context.Context, _ string, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			time.Sleep(backoff)
			return nil, s.Backend.Forget(ctx, recordOf(token))
		})
		ctx, cancel := context.WithTimeout(t.Context(), 6*backoff-time.Second)
		defer cancel()
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
		want := []time.Duration{0, backoff, 2 * backoff, 3 * backoff, 4 * backoff, 5 * backoff}
		if got := seen.byID[workID]; !slices.Equal(got, want) {
			t.Errorf("there were attempts at %v, want at %v", got, want)
		}
	})
}

// Only what is fenced time and again, and nothing else, is slowed down.
func TestFencedAfterSomethingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		seen := watchAttempts(s, 0)
		calls := 0
		p := newPool(t, leaseOf(t, s, "a"), config(workID), func(ctx context.Context, _ string, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			if calls++; calls%3 == 0 {
				return nil, errWork
			}
			return nil, s.Backend.Forget(ctx, recordOf(token))
		})
		runFor(t, p, 2*backoff-time.Second)
		want := []time.Duration{0, 0, 0, backoff, backoff, backoff}
		if got := seen.byID[workID]; !slices.Equal(got, want) {
			t.Errorf("there were attempts at %v, want at %v", got, want)
		}
	})
}
