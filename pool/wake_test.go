package pool_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/internal/faulty"
)

func TestIdleSlotIsWokenByARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		record, err := store.Acquire(t.Context(), workID, "rival", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		release := 10*idle + idle/2
		time.AfterFunc(release, func() {
			if err := store.Release(context.Background(), record, backend.ExitFinished); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		var began []time.Duration
		p := newPool(t, leaseOf(t, store, "a"), config(workID), func(context.Context, string, worklease.Token, worklease.Checkpoint) ([]byte, error) {
			began = append(began, time.Since(start))
			return nil, nil
		})
		runFor(t, p, release+rerun-1)
		if len(began) != 1 || began[0] != release { // its own release does not cut the pause after a success short
			t.Errorf("the work began at %v, want once, at %v", began, release)
		}
	})
}

// A store that could not tell for a while wakes everyone. That is no reason for 1,000 attempts at once.
func TestManyWakeUpsAreNoBurst(t *testing.T) {
	for name, free := range map[string]func(context.Context, []string) ([]string, error){
		"looks work": nil, "looks fail": failures[0].free,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n, at = 1000, 3*idle + idle/2
				s := newRousing()
				s.OnFree = free
				all := ids(n)
				records := rivals(t, s.Backend, all...)
				start := time.Now()
				var mu sync.Mutex
				attempts := map[time.Duration]int{} // by tenths of an interval
				s.OnAcquire = func(ctx context.Context, id, holder string, ttl time.Duration) (backend.LeaseRecord, error) {
					mu.Lock()
					attempts[time.Since(start).Truncate(idle/10)]++
					mu.Unlock()
					return s.Backend.Acquire(ctx, id, holder, ttl)
				}
				// Who is at the end of the row when a look says that it was in vain hears the next one.
				last := all[n-1]
				time.AfterFunc(at, func() {
					s.wake(all[:n-1]...)
					time.Sleep(time.Millisecond)
					s.wake(last)
				})
				const freed = 6*idle + idle/3
				time.AfterFunc(freed, func() {
					release(t, s.Backend, records[n-1])
					s.wake(last)
				})
				var began time.Duration
				runFor(t, newPool(t, leaseOf(t, s, "a"), config(all...), func(ctx context.Context, id string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
					began = time.Since(start)
					awaitEnd(ctx)
					return nil, nil
				}), 8*idle)
				if began < freed || began > freed+10*time.Millisecond {
					t.Errorf("what was released at %v is begun at %v", freed, began)
				}
				if total := s.Acquires.Load(); free == nil && total > 10 {
					t.Errorf("%d attempts were made where a look could tell", total)
				}
				for at, made := range attempts {
					if made > n/2 {
						t.Errorf("%d attempts came within %v, at %v", made, idle/10, at)
					}
				}
			})
		})
	}
}

// A look that has read the store before a release does not undo what the slot is told of that.
func TestLookDoesNotUndoAWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRousing()
		s.OnFree = func(ctx context.Context, workIDs []string) ([]string, error) {
			if s.Looks.Load() > 1 {
				return failures[1].free(ctx, workIDs) // lest it tell of the release
			}
			defer time.Sleep(400 * time.Millisecond)
			return s.Backend.(backend.Looker).Free(ctx, workIDs)
		}
		all := ids(300)
		records := rivals(t, s.Backend, all...)
		// At the start, while the first look is on its way. The last is in a row behind all the others.
		const freed = 100 * time.Millisecond
		last := len(all) - 1
		time.AfterFunc(freed, func() {
			s.wake(all[:last]...)
			time.Sleep(time.Millisecond)
			release(t, s.Backend, records[last])
			s.wake(all[last])
		})
		start := time.Now()
		var began time.Duration
		runFor(t, newPool(t, leaseOf(t, s, "a"), config(all...), func(ctx context.Context, _ string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			began = time.Since(start)
			awaitEnd(ctx)
			return nil, nil
		}), 10*time.Second)
		if most := freed + time.Duration(len(all))*2*time.Millisecond + time.Millisecond; began < freed || began > most {
			t.Errorf("what was released at %v is begun at %v", freed, began)
		}
	})
}

// What Run has begun to listen for by then, it ends.
func TestStoreThatPanicsWhenItIsToWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which waits for every goroutine
		s := &unwakeable{rousing: newRousing()}
		p := newPool(t, leaseOf(t, s, "a"), config(ids(10)...), untilDone(nil, nil))
		func() {
			defer func() {
				if got := recover(); got != errStore {
					t.Errorf("Run has panicked with %v", got)
				}
			}()
			_ = p.Run(t.Context())
		}()
		if s.stopped != s.asked-1 {
			t.Errorf("of %d that were to be woken %d are not any more", s.asked-1, s.stopped)
		}
		runFor(t, p, time.Second)
	})
}

// unwakeable panics when it is asked for the fifth time.
type unwakeable struct {
	*rousing
	asked, stopped int
}

func (s *unwakeable) Wake(workID string) (<-chan struct{}, func()) {
	if s.asked++; s.asked == 5 {
		panic(errStore)
	}
	woken, _ := s.rousing.Wake(workID)
	return woken, func() { s.stopped++ }
}

// rousing is a store that wakes whom a test says.
type rousing struct {
	*faulty.Looking
	mu      sync.Mutex
	waiters map[string]chan struct{}
}

func newRousing() *rousing {
	return &rousing{Looking: newLooking(), waiters: map[string]chan struct{}{}}
}

func (s *rousing) Wake(workID string) (<-chan struct{}, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters[workID] = make(chan struct{}, 1)
	return s.waiters[workID], func() {}
}

func (s *rousing) wake(workIDs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range workIDs {
		select {
		case s.waiters[id] <- struct{}{}:
		default:
		}
	}
}
