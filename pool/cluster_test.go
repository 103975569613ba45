package pool_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/pool"
)

// cluster checks that each work ID is worked on by one process at a time, and that each carries on from
// the state that was saved last.
type cluster struct {
	mu      sync.Mutex
	holder  map[string]string
	state   map[string]string
	tenures int
}

func (c *cluster) work(t *testing.T) pool.WorkFn {
	return func(ctx context.Context, id string, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
		c.mu.Lock()
		if other := c.holder[id]; other != "" {
			t.Errorf("%s begins %s, which %s works on", token.HolderID(), id, other)
		}
		if got, want := string(prior.State), c.state[id]; got != want {
			t.Errorf("%s finds %q in %s, last was %q", token.HolderID(), got, id, want)
		}
		c.holder[id] = token.HolderID()
		c.tenures++
		state := fmt.Sprintf("%s %d", token.HolderID(), token.FencingToken())
		c.state[id] = state
		c.mu.Unlock()
		awaitEnd(ctx)
		time.Sleep(10 * time.Millisecond)
		c.mu.Lock()
		c.holder[id] = ""
		c.mu.Unlock()
		return []byte(state), context.Cause(ctx)
	}
}

func TestOneOfTwoPoolsStopsInGoodOrder(t *testing.T) {
	for _, n := range []int{1, 10, 300} {
		t.Run(fmt.Sprint(n, " slots"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore()
				all := ids(n)
				c := cluster{holder: map[string]string{}, state: map[string]string{}}
				first := newPool(t, leaseOf(t, store, "first"), config(all...), c.work(t))
				second := newPool(t, leaseOf(t, &faulty.Store{Backend: store.Backend}, "second"), config(all...), c.work(t))
				var running sync.WaitGroup
				running.Go(func() { runUntil(t, first, time.Minute) })
				ctx, cancel := context.WithCancel(t.Context())
				running.Go(func() {
					if err := second.Run(ctx); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(time.Minute - time.Second)
				if got := len(first.ActiveSlots()) + len(second.ActiveSlots()); got != n {
					t.Errorf("%d of %d are worked on", got, n)
				}
				time.Sleep(time.Second + 10*time.Millisecond + idle + idle/5)
				synctest.Wait()
				if got := second.ActiveSlots(); !slices.Equal(got, all) {
					t.Errorf("after the first pool has stopped, the second has %d of %d", len(got), n)
				}
				cancel()
				running.Wait()
				if c.tenures > 2*n || c.tenures < n {
					t.Errorf("there were %d tenures of %d work IDs", c.tenures, n)
				}
			})
		})
	}
}

// runUntil runs p for d. What it does after that, it has 10 ms for.
func runUntil(t *testing.T, p *pool.Pool, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	start := time.Now()
	if err := p.Run(ctx); err != nil {
		t.Errorf("Run returned %v", err)
	}
	if took := time.Since(start); took > d+10*time.Millisecond {
		t.Errorf("Run returned after %v", took)
	}
}

// The process that comes first has all there is, until it stops.
func TestNothingGivesWorkBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const works = 5 * time.Minute // about 95 attempts of each slot that has nothing
		store := newStore()
		all := ids(100)
		first := newPool(t, leaseOf(t, store, "first"), config(all...), untilDone(nil, nil))
		later := newPool(t, leaseOf(t, store, "later"), config(all...), untilDone(nil, nil))
		var running sync.WaitGroup
		running.Go(func() { runFor(t, first, works) })
		time.Sleep(10 * time.Second)
		running.Go(func() { runFor(t, later, 2*works) })
		time.Sleep(works - 20*time.Second)
		if got := first.ActiveSlots(); !slices.Equal(got, all) {
			t.Errorf("the first has %d of %d", len(got), len(all))
		}
		if got := later.ActiveSlots(); len(got) != 0 {
			t.Errorf("the one that came later has %q", got)
		}
		time.Sleep(20 * time.Second)
		if got := later.ActiveSlots(); !slices.Equal(got, all) {
			t.Errorf("when the first has stopped, the other has %d of %d", len(got), len(all))
		}
		running.Wait()
	})
}

// Two processes that start together share the work about equally.
func TestPoolsThatStartTogetherShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		all := ids(200)
		pools := []*pool.Pool{
			newPool(t, leaseOf(t, store, "first"), config(all...), untilDone(nil, nil)),
			newPool(t, leaseOf(t, store, "second"), config(all...), untilDone(nil, nil)),
		}
		var running sync.WaitGroup
		for _, p := range pools {
			running.Go(func() { runFor(t, p, time.Minute) })
		}
		time.Sleep(30 * time.Second)
		for _, p := range pools {
			if n := len(p.ActiveSlots()); n < 50 { // 100, and a spread of 5
				t.Errorf("one pool has %d of %d", n, len(all))
			}
		}
		running.Wait()
	})
}
