package pool_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/pool"
)

// newLooking is a store that tells which of many work IDs are free, and nobody when one becomes so.
func newLooking() *faulty.Looking { return &faulty.Looking{Store: newStore()} }

// release gives up what a rival acquired.
func release(t *testing.T, b backend.Backend, record backend.LeaseRecord) {
	t.Helper()
	if err := b.Release(context.WithoutCancel(t.Context()), record, backend.ExitFinished); err != nil {
		t.Error(err)
	}
}

// rivals makes a rival hold every one of workIDs.
func rivals(t *testing.T, b backend.Backend, workIDs ...string) []backend.LeaseRecord {
	t.Helper()
	records := make([]backend.LeaseRecord, len(workIDs))
	for i, id := range workIDs {
		var err error
		if records[i], err = b.Acquire(t.Context(), id, "rival", 1000*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	return records
}

// As long as idle slots have no goroutines the race detector, which has room for 8,128, has room for these.
func TestNothingFreeCostsOneLookInAnInterval(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			const intervals = 30
			s := newLooking()
			all := ids(10_000)
			holdAll(t, s.Backend, all...)
			p := newPool(t, leaseOf(t, s, "a"), pool.Config{WorkIDs: all, IdleInterval: interval}, returning(nil, nil))
			before := runtime.NumGoroutine()
			time.AfterFunc(10*interval, func() {
				if n := runtime.NumGoroutine() - before; n > 100 {
					t.Errorf("idle slots have %d goroutines", n)
				}
			})
			runFor(t, p, intervals*interval)
			if n := s.Looks.Load(); n < intervals || n > intervals+1 {
				t.Errorf("there were %d looks in %d intervals, want one in each, and one at the start", n, intervals)
			}
			if n := s.Acquires.Load(); n != 0 {
				t.Errorf("there were %d attempts to acquire", n)
			}
			if n := s.Most.Load(); n != int64(len(all)) {
				t.Errorf("a look was for %d work IDs", n)
			}
		})
	}
}

func TestWhatBecomesFreeIsTakenWithinAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 300
		s := newLooking()
		all := ids(n)
		records := rivals(t, s.Backend, all...)
		var mu sync.Mutex
		freed := map[string]time.Time{}
		p := newPool(t, leaseOf(t, s, "a"), config(all...), func(ctx context.Context, id string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			mu.Lock()
			took := time.Since(freed[id])
			mu.Unlock()
			if took > idle+idle/5 {
				t.Errorf("%s was taken %v after it was free", id, took)
			}
			awaitEnd(ctx)
			return nil, nil
		})
		go func() {
			for i, id := range all { // one by one, and the last hundred together
				if i < 200 {
					time.Sleep(110 * time.Millisecond)
				}
				mu.Lock()
				freed[id] = time.Now()
				mu.Unlock()
				release(t, s.Backend, records[i])
			}
			time.Sleep(2 * idle)
			if got := p.ActiveSlots(); !slices.Equal(got, all) {
				t.Errorf("%d of %d slots are active", len(got), n)
			}
		}()
		runFor(t, p, time.Minute)
		if got := s.Acquires.Load(); got != n {
			t.Errorf("there were %d attempts for %d leases", got, n)
		}
	})
}

// What a look finds free is not asked for in one burst, however much it is.
func TestWhatALookFindsIsTriedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval, n = time.Second, 1000
		s := newLooking()
		all := ids(n)
		records := rivals(t, s.Backend, all...)
		seen := watchAttempts(s.Store, 0)
		p := newPool(t, leaseOf(t, s, "a"), pool.Config{WorkIDs: all}, untilDone(nil, nil))
		const at = 10500 * time.Millisecond
		time.AfterFunc(at, func() {
			for _, record := range records {
				release(t, s.Backend, record)
			}
		})
		runFor(t, p, 20*time.Second)
		var times []time.Duration
		for id, at := range seen.byID {
			if len(at) != 1 {
				t.Errorf("%s was tried at %v", id, at)
			}
			times = append(times, at...)
		}
		slices.Sort(times)
		first, last := times[0], times[len(times)-1]
		if len(times) != n || first < at || last > at+interval+interval/5 {
			t.Errorf("%d attempts came from %v to %v", len(times), first, last)
		}
		const tenth = n / 10
		for i := tenth; i < n; i += tenth {
			if d := times[i] - times[i-tenth]; d < interval/110 {
				t.Errorf("a tenth of the attempts came in %v", d)
			}
		}
	})
}

func TestFreeWorkIsBegunSoonAfterALook(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := newLooking()
			seen := watchAttempts(s.Store, 0)
			all := ids(1300)
			holdAll(t, s.Backend, all[300:]...)
			cfg := config(all...)
			cfg.IdleInterval = interval
			p := newPool(t, leaseOf(t, s, "a"), cfg, untilDone(nil, nil))
			time.AfterFunc(600*time.Millisecond, func() {
				if got := p.ActiveSlots(); !slices.Equal(got, all[:300]) {
					t.Errorf("with an interval of %v %d of 300 slots are active", interval, len(got))
				}
			})
			runFor(t, p, time.Second)
			seen.wantSpread(t, 600*time.Millisecond, 0, 590*time.Millisecond, 0.95)
		})
	}
}

// A look is for what is idle: not for what is worked on, pauses or has ended.
func TestLooksAreForIdleSlotsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLooking()
		var mu sync.Mutex
		sought := map[string]int{}
		s.OnFree = func(ctx context.Context, workIDs []string) ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			for _, id := range workIDs {
				sought[id]++
			}
			return s.Backend.(backend.Looker).Free(ctx, workIDs)
		}
		holdAll(t, s.Backend, "held")
		cfg := config("dies", "fails", "held", "retires", "succeeds", "works")
		cfg.RerunInterval, cfg.BackoffInterval = 10*time.Hour, 10*time.Hour
		runFor(t, newPool(t, leaseOf(t, s, "a"), cfg, func(ctx context.Context, id string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			switch id {
			case "dies":
				return nil, pool.Permanent(errWork)
			case "fails":
				return nil, errWork
			case "retires":
				return nil, worklease.ErrRetire
			case "works":
				awaitEnd(ctx)
			}
			return nil, nil
		}), 10*idle)
		for id, n := range sought {
			if want := n == 1; id == "held" && n < 10 || id != "held" && !want {
				t.Errorf("%s was looked for %d times", id, n)
			}
		}
		if len(sought) != 6 {
			t.Errorf("%v were looked for", sought)
		}
	})
}

func TestWhatIsFoundFreeIsNotLookedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000 // that try for longer than it is to the next look
		s := newLooking()
		var sought atomic.Int64
		s.OnFree = func(ctx context.Context, workIDs []string) ([]string, error) {
			sought.Add(int64(len(workIDs)))
			return s.Backend.(backend.Looker).Free(ctx, workIDs)
		}
		runFor(t, newPool(t, leaseOf(t, s, "a"), pool.Config{WorkIDs: ids(n)}, untilDone(nil, nil)), 3*time.Second)
		if sought.Load() != n || s.Acquires.Load() != n {
			t.Errorf("%d work IDs were looked for, and %d tried", sought.Load(), s.Acquires.Load())
		}
	})
}

// With nobody idle there is nothing to look for, and who becomes idle is looked for again.
func TestLooksRestWhileNobodyIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLooking()
		var lost atomic.Bool
		p := newPool(t, leaseOf(t, s, "a"), config(ids(10)...), func(ctx context.Context, _ string, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			if lost.Load() {
				awaitEnd(ctx)
				return nil, nil
			}
			time.Sleep(time.Hour)
			lost.Store(true)
			takeOver(t, s.Backend, token, time.Hour)
			return nil, nil
		})
		time.AfterFunc(time.Hour-time.Second, func() {
			if n := s.Looks.Load(); n != 1 {
				t.Errorf("while all slots are active there were %d looks", n)
			}
		})
		time.AfterFunc(2*time.Hour+idle+idle/5+time.Second, func() {
			if n := len(p.ActiveSlots()); n != 10 {
				t.Errorf("%d slots are active", n)
			}
			if looks, most := s.Looks.Load(), int64(time.Hour/idle)+3; looks > most {
				t.Errorf("there were %d looks, want %d at most", looks, most)
			}
		})
		runFor(t, p, 3*time.Hour)
		if n := s.Acquires.Load(); n != 30 { // had, refused after the loss, and had again
			t.Errorf("there were %d attempts", n)
		}
	})
}

// Nothing passes the time while all slots are at work. In the bubble, a loop that went round once in each
// interval would take 10^13 rounds.
func TestTinyIntervalIsNoLoadWhileNobodyIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLooking()
		cfg := config(ids(10)...)
		cfg.IdleInterval = time.Nanosecond
		p := newPool(t, leaseOf(t, s, "a"), cfg, untilDone(nil, nil))
		runFor(t, p, 3*time.Hour)
		if n := s.Looks.Load(); n != 1 {
			t.Errorf("there were %d looks", n)
		}
	})
}

// A look may be wrong by the time of the attempt. Who is refused is idle, and does not ask again sooner
// than its interval.
func TestWhoLosesTheRaceIsIdleAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLooking()
		s.OnFree = func(_ context.Context, workIDs []string) ([]string, error) { return workIDs, nil } // so it seems
		all := ids(100)
		holdAll(t, s.Backend, all...)
		seen := watchAttempts(s.Store, 10*time.Millisecond)
		events := newRecorder()
		cfg := config(all...)
		cfg.Observer = events
		runFor(t, newPool(t, leaseOf(t, s, "a"), cfg, returning(nil, nil)), 20*idle)
		if len(events.events) != 0 {
			t.Errorf("there were events: %v", events.events)
		}
		for id, times := range seen.byID {
			if n := len(times); n < 9 || n > 20 {
				t.Errorf("%s was tried %d times", id, n)
			}
			for i := 1; i < len(times); i++ {
				if wait := times[i] - times[i-1]; wait < idle {
					t.Errorf("%s was tried again after %v", id, wait)
				}
			}
		}
	})
}

func TestTwoPoolsThatLookShareWhatIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, from = 1000, 10 * time.Second
		store := memory.New()
		all := ids(n)
		records := rivals(t, store, all...)
		stores := []*faulty.Looking{
			{Store: &faulty.Store{Backend: store}},
			{Store: &faulty.Store{Backend: store}},
		}
		c := cluster{holder: map[string]string{}, state: map[string]string{}}
		var pools []*pool.Pool
		var running sync.WaitGroup
		for i, s := range stores {
			p := newPool(t, leaseOf(t, s, string(rune('a'+i))), config(all...), c.work(t))
			pools = append(pools, p)
			running.Go(func() { runUntil(t, p, time.Minute) })
		}
		time.AfterFunc(from, func() {
			for _, record := range records {
				release(t, store, record)
			}
		})
		time.AfterFunc(from+idle+idle/5, func() {
			if got := len(pools[0].ActiveSlots()) + len(pools[1].ActiveSlots()); got != n {
				t.Errorf("%d of %d are worked on", got, n)
			}
		})
		running.Wait()
		if c.tenures != n+n && c.tenures < n { // what one gives up at the end the other may still get
			t.Errorf("there were %d tenures", c.tenures)
		}
		if tried := stores[0].Acquires.Load() + stores[1].Acquires.Load(); tried > 3*n {
			t.Errorf("there were %d attempts for %d leases", tried, n)
		}
	})
}

// A store that also tells what becomes free has the slot try at once; a look finds what has lapsed.
func TestWakeUpsWorkBesideLooks(t *testing.T) {
	for name, free := range map[string]func(context.Context, []string) ([]string, error){
		"looks work": nil, "looks fail": failures[0].free,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &wakingLooker{Looking: newLooking()}
				s.OnFree = free
				const at = 10*idle + idle/2
				records := rivals(t, s.Backend, "released")
				if _, err := s.Backend.Acquire(t.Context(), "lapses", "rival", at); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				time.AfterFunc(at, func() { release(t, s.Backend, records[0]) })
				began := map[string]time.Duration{}
				var mu sync.Mutex
				runFor(t, newPool(t, leaseOf(t, s, "a"), config("lapses", "released"), func(ctx context.Context, id string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
					mu.Lock()
					began[id] = time.Since(start)
					mu.Unlock()
					awaitEnd(ctx)
					return nil, nil
				}), 20*idle)
				if began["released"] != at {
					t.Errorf("what was released at %v is begun at %v", at, began["released"])
				}
				if got := began["lapses"]; got < at || got > at+idle+idle/5 {
					t.Errorf("what lapsed at %v is begun at %v", at, got)
				}
			})
		})
	}
}

// wakingLooker tells what becomes free, too.
type wakingLooker struct{ *faulty.Looking }

func (s *wakingLooker) Wake(workID string) (<-chan struct{}, func()) {
	return s.Backend.(backend.Waker).Wake(workID)
}
