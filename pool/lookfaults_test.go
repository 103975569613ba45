package pool_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/pool"
)

// failures of a look, and what it must not come to.
var failures = []struct {
	name string
	free func(context.Context, []string) ([]string, error)
	late time.Duration // what the first attempts wait for
}{
	{"fails", func(context.Context, []string) ([]string, error) { return nil, errStore }, 0},
	{"hangs", func(ctx context.Context, _ []string) ([]string, error) { <-ctx.Done(); return nil, ctx.Err() }, 2 * time.Second},
	{"panics", func(context.Context, []string) ([]string, error) { panic(errStore) }, 0},
	{"exits", func(context.Context, []string) ([]string, error) { runtime.Goexit(); return nil, nil }, 0},
	{"is not supported after all", func(context.Context, []string) ([]string, error) { return nil, errors.ErrUnsupported }, 0},
}

// Without looks each slot asks for itself, spread as ever.
func TestSlotsAskThemselvesIfALookFails(t *testing.T) {
	for _, tc := range failures {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const interval, n, intervals = time.Second, 600, 7
				s := newLooking()
				s.OnFree = tc.free
				all := ids(n)
				holdAll(t, s.Backend, all...)
				seen := watchAttempts(s.Store, 0)
				p := newPool(t, leaseOf(t, s, "a"), pool.Config{WorkIDs: all}, returning(nil, nil))
				runFor(t, p, intervals*interval)
				if len(seen.byID) != n {
					t.Errorf("%d slots made an attempt", len(seen.byID))
				}
				seen.wantSpread(t, interval, tc.late, intervals*interval, 0.85)
				seen.wantWaits(t, interval, 0)
				if looks := s.Looks.Load(); tc.name == "is not supported after all" && looks != 1 || looks > intervals+1 {
					t.Errorf("there were %d looks", looks)
				}
			})
		})
	}
}

// Looks that fail for a while have the slots ask themselves in the places that are theirs, and after that
// no more.
func TestSlotsRelyOnLooksThatWorkAgain(t *testing.T) {
	for _, tc := range failures[:4] {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const interval, n = time.Second, 300
				const from, to, end = 3 * interval, 12 * interval, 18 * interval
				s := newLooking()
				start := time.Now()
				s.OnFree = func(ctx context.Context, workIDs []string) ([]string, error) {
					if at := time.Since(start); at >= from && at < to {
						return tc.free(ctx, workIDs)
					}
					return s.Backend.(backend.Looker).Free(ctx, workIDs)
				}
				all := ids(n)
				holdAll(t, s.Backend, all...)
				seen := watchAttempts(s.Store, 0)
				p := newPool(t, leaseOf(t, s, "a"), pool.Config{WorkIDs: all}, returning(nil, nil))
				runFor(t, p, end)
				if len(seen.byID) != n {
					t.Errorf("%d slots made an attempt", len(seen.byID))
				}
				for id, times := range seen.byID {
					if times[0] < from || times[0] > from+interval+tc.late+interval+interval/5 {
						t.Errorf("%s was first tried at %v", id, times[0])
					}
					if last := times[len(times)-1]; last > to+tc.late+interval+interval/5 {
						t.Errorf("%s was last tried at %v", id, last)
					}
				}
				seen.wantSpread(t, interval, from+2*interval+tc.late, to, 0.85)
				seen.wantWaits(t, interval, 0)
			})
		})
	}
}

// An outage shows to the observer as ever, and brings no burst.
func TestOutageOfALookingStoreIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		s := newLooking()
		var down atomic.Bool
		s.OnFree = func(ctx context.Context, workIDs []string) ([]string, error) {
			if down.Load() {
				return nil, errStore
			}
			return s.Backend.(backend.Looker).Free(ctx, workIDs)
		}
		all := ids(n)
		holdAll(t, s.Backend, all...)
		var mu sync.Mutex
		asked := map[int]int{} // in each tenth of an interval
		start := time.Now()
		s.OnAcquire = func(ctx context.Context, id, holder string, ttl time.Duration) (backend.LeaseRecord, error) {
			mu.Lock()
			asked[int(time.Since(start)/(idle/10))]++
			mu.Unlock()
			if down.Load() {
				return backend.LeaseRecord{}, errStore
			}
			return s.Backend.Acquire(ctx, id, holder, ttl)
		}
		events := newRecorder()
		cfg := config(all...)
		cfg.Observer = events
		time.AfterFunc(time.Minute, func() { down.Store(true) })
		time.AfterFunc(2*time.Minute, func() { down.Store(false) })
		runFor(t, newPool(t, leaseOf(t, s, "a"), cfg, returning(nil, nil)), 4*time.Minute)
		for tenth, made := range asked {
			if made > n/9 {
				t.Errorf("%d attempts came within %v, at %v", made, idle/10, time.Duration(tenth)*idle/10)
			}
		}
		for _, id := range all {
			got := events.of(id)
			if least, most := int((time.Minute-3*idle)/backoff), int(time.Minute/backoff)+1; len(got) < least || len(got) > most {
				t.Fatalf("there were %d events of %s", len(got), id)
			}
			for _, e := range got {
				if e.name != "backoff" || !errors.Is(e.err, errStore) || e.at > 2*time.Minute {
					t.Fatalf("the events of %s are %v", id, got)
				}
			}
		}
		looks, acquires := s.Looks.Load(), s.Acquires.Load()
		if least := int64((4*time.Minute - time.Minute - 2*backoff) / idle); looks < least {
			t.Errorf("there were %d looks, want %d at least", looks, least)
		}
		if most := int64(n) * int64(time.Minute/backoff+3); acquires > most {
			t.Errorf("there were %d attempts", acquires)
		}
	})
}

// One call that hangs whatever becomes of its context does not keep the slots from what is free, and has no
// second one hang beside it.
func TestSlotsDoWithoutALookThatHangs(t *testing.T) {
	for name, answered := range map[string]int64{"the first": 0, "a later one": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const hung, again = time.Minute, 2 * time.Minute
				s := newLooking()
				returns := make(chan struct{})
				s.OnFree = func(ctx context.Context, workIDs []string) ([]string, error) {
					if s.Looks.Load() == answered+1 {
						<-returns
					}
					return s.Backend.(backend.Looker).Free(ctx, workIDs)
				}
				all := ids(20)
				records := rivals(t, s.Backend, all...)
				p := newPool(t, leaseOf(t, s, "a"), config(all...), untilDone(nil, nil))
				time.AfterFunc(hung, func() { release(t, s.Backend, records[0]) })
				time.AfterFunc(hung+idle+idle/5, func() {
					if got := p.ActiveSlots(); !slices.Equal(got, all[:1]) {
						t.Errorf("while a look hangs %q are active", got)
					}
					if n := s.Looks.Load(); n != answered+1 {
						t.Errorf("beside a look that hangs there are %d", n-1)
					}
				})
				var attempts atomic.Int64
				time.AfterFunc(again, func() { close(returns) })
				time.AfterFunc(again+2*idle, func() { attempts.Store(s.Acquires.Load()) })
				runFor(t, p, 3*time.Minute)
				if n := s.Acquires.Load(); n != attempts.Load() {
					t.Errorf("once looks work again there are %d attempts", n-attempts.Load())
				}
			})
		})
	}
}

func TestRunEndsDuringALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLooking()
		s.OnFree = failures[1].free
		runFor(t, newPool(t, leaseOf(t, s, "a"), config(ids(10)...), returning(nil, nil)), time.Second)
		if s.Looks.Load() != 1 || s.Acquires.Load() != 0 {
			t.Errorf("there were %d looks and %d attempts", s.Looks.Load(), s.Acquires.Load())
		}
	})
}

// A work ID that every store refuses is no reason for looks to fail, and its slot says what is wrong with it.
func TestBadWorkIDDoesNotBlindTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLooking()
		const bad = "bad\x00"
		s.OnFree = func(ctx context.Context, workIDs []string) ([]string, error) {
			if slices.Contains(workIDs, bad) {
				return nil, errStore
			}
			return s.Backend.(backend.Looker).Free(ctx, workIDs)
		}
		holdAll(t, s.Backend, "held")
		events := newRecorder()
		cfg := config(bad, "held")
		cfg.Observer = events
		runFor(t, newPool(t, leaseOf(t, s, "a"), cfg, returning(nil, nil)), 3*backoff-time.Second)
		if got := events.of(bad); len(got) != 3 || got[0].name != "backoff" {
			t.Errorf("the events of the bad ID are %v", got)
		}
		if n := s.Acquires.Load(); n != 0 {
			t.Errorf("there were %d attempts", n)
		}
	})
}

// plain hides what a Lease has beyond the interface, as a wrapper does.
type plain struct{ worklease.Lease }

func TestPoolOfAWrappedLeaseAsksForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLooking()
		all := ids(1000)
		holdAll(t, s.Backend, all...)
		seen := watchAttempts(s.Store, 0)
		p := newPool(t, plain{leaseOf(t, s, "a")}, pool.Config{WorkIDs: all}, returning(nil, nil))
		runFor(t, p, 10*time.Second)
		seen.wantSpread(t, time.Second, 0, 10*time.Second, 0.85)
		seen.wantWaits(t, time.Second, 0)
		if n := s.Looks.Load(); n != 0 {
			t.Errorf("there were %d looks", n)
		}
	})
}
