package pool_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/pool"
)

func TestRunReturnsWhenEverySlotHasEnded(t *testing.T) {
	for _, tc := range []struct {
		name string
		errs map[string]error
		want error
	}{
		{"all dead", map[string]error{"a": pool.Permanent(errWork), "b": pool.Permanent(errWork)}, pool.ErrAllSlotsDead},
		{"all retired", map[string]error{"a": worklease.ErrRetire, "b": worklease.ErrRetire}, nil},
		{"dead and retired", map[string]error{"a": pool.Permanent(errWork), "b": worklease.ErrRetire}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events := newRecorder()
				cfg := config("a", "b")
				cfg.Observer = events
				p := newPool(t, leaseOf(t, newStore(), "h"), cfg, func(_ context.Context, id string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
					if id == "b" {
						time.Sleep(time.Hour)
					}
					return nil, tc.errs[id]
				})
				start := time.Now()
				if err := p.Run(t.Context()); !errors.Is(err, tc.want) || tc.want == nil && err != nil {
					t.Errorf("Run returned %v, want %v", err, tc.want)
				}
				if took := time.Since(start).Round(time.Second); took != time.Hour {
					t.Errorf("Run took %v", took)
				}
				if len(events.of("a")) != 2 || len(events.of("b")) != 2 {
					t.Errorf("the events are %v", events.events)
				}
			})
		})
	}
}

// One slot that has ended does not end the others, and what is retired elsewhere is just work again.
func TestDeadSlotLeavesTheOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, leaseOf(t, newStore(), "h"), config("a", "b"),
			func(ctx context.Context, id string, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
				if id == "a" {
					return nil, pool.Permanent(errWork)
				}
				return untilDone(nil, nil)(ctx, id, token, prior)
			})
		time.AfterFunc(time.Hour, func() {
			if got := p.ActiveSlots(); !slices.Equal(got, []string{"b"}) {
				t.Errorf("the active slots are %q", got)
			}
		})
		runFor(t, p, 2*time.Hour)
	})
}

// The whole life of a slot, as its observer sees it.
func TestEventsOfASlotInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		events := newRecorder()
		cfg := config(workID)
		cfg.Observer = events
		calls := 0
		p := newPool(t, leaseOf(t, s, "a"), cfg,
			func(_ context.Context, _ string, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
				time.Sleep(time.Second)
				calls++
				switch calls {
				case 1: // success
					return nil, nil
				case 2:
					return nil, errWork
				case 3:
					takeOver(t, s.Backend, token, 5*idle/2)
					return nil, nil
				default:
					return nil, worklease.ErrRetire
				}
			})
		if err := p.Run(t.Context()); err != nil {
			t.Errorf("Run returned %v", err)
		}
		events.wantEvents(t, "acquired", "acquired", "backoff", "acquired", "lost", "acquired", "retired")
		got := events.of(workID)
		for _, tc := range []struct {
			name        string
			from, to    int
			least, most time.Duration
		}{
			{"success", 0, 1, time.Second + rerun, time.Second + rerun + rerun/5},
			{"failure", 1, 2, time.Second, time.Second},
			{"backoff", 2, 3, backoff, backoff},
			{"loss", 3, 4, time.Second, time.Second},
			{"three idle waits", 4, 5, 3 * idle, 3 * (idle + idle/5)},
			{"retirement", 5, 6, time.Second, time.Second},
		} {
			if d := got[tc.to].at - got[tc.from].at; d < tc.least || d > tc.most {
				t.Errorf("%s took %v, want %v to %v", tc.name, d, tc.least, tc.most)
			}
		}
	})
}

// Whatever a slot is doing when ctx ends, it ends silently, and Run returns when the last function has.
func TestShutdownInEveryPhase(t *testing.T) {
	const (
		shutdown = ttl / 2 // before the attempt that hangs is given up
		drain    = 4 * ttl
	)
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnAcquire = func(ctx context.Context, id, holder string, ttl time.Duration) (backend.LeaseRecord, error) {
			if id == "acquiring" {
				<-ctx.Done()
				return backend.LeaseRecord{}, ctx.Err()
			}
			return s.Backend.Acquire(ctx, id, holder, ttl)
		}
		holdAll(t, s.Backend, "held")
		events := newRecorder()
		cfg := config("acquiring", "drains", "fails", "fails later", "fenced later", "gives up later", "held", "retires", "succeeds")
		cfg.Observer, cfg.RerunInterval, cfg.BackoffInterval = events, time.Hour, time.Hour
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		var drained atomic.Bool
		p := newPool(t, leaseOf(t, s, "a"), cfg, func(ctx context.Context, id string, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			switch id {
			case "succeeds":
				return nil, nil
			case "fails":
				return nil, errWork
			}
			awaitEnd(ctx)
			if cause := context.Cause(ctx); cause != errShutdown {
				t.Errorf("%s was told to stop by %v", id, cause)
			}
			switch id {
			case "drains":
				time.Sleep(drain)
				drained.Store(true)
				return []byte("drained"), context.Cause(ctx)
			case "fenced later":
				takeOver(t, s.Backend, token, time.Nanosecond)
				return nil, nil
			case "gives up later":
				return nil, pool.Permanent(errWork)
			case "retires":
				return []byte("done"), worklease.ErrRetire
			}
			return []byte("later"), errWork
		})
		start := time.Now()
		time.AfterFunc(shutdown, func() {
			if got, want := p.ActiveSlots(), []string{"drains", "fails later", "fenced later", "gives up later", "retires"}; !slices.Equal(got, want) {
				t.Errorf("the active slots are %q, want %q", got, want)
			}
			cancel(errShutdown)
			time.Sleep(time.Millisecond)
			if got := p.ActiveSlots(); !slices.Equal(got, []string{"drains"}) {
				t.Errorf("while it drains the active slots are %q", got)
			}
		})
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(start); took != shutdown+drain || !drained.Load() {
			t.Errorf("Run took %v, want to the end of the drain", took)
		}
		for id, want := range map[string][]string{
			"acquiring": nil, "held": nil, "succeeds": {"acquired"}, "fails": {"acquired", "backoff"},
			"drains": {"acquired"}, "fails later": {"acquired"}, "fenced later": {"acquired"},
			"gives up later": {"acquired"}, "retires": {"acquired", "retired"},
		} {
			var got []string
			for _, e := range events.of(id) {
				got = append(got, e.name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the events of the slot that %s are %v, want %v", id, got, want)
			}
		}
		wantFound(t, inherit(t, s, "drains"), "drained", worklease.ExitAbandoned)
		wantFound(t, inherit(t, s, "fails later"), "later", worklease.ExitAbandoned)
		wantFound(t, inherit(t, s, "retires"), "done", worklease.ExitRetired)
		wantFound(t, inherit(t, s, "succeeds"), "", worklease.ExitFinished)
		if got := p.ActiveSlots(); len(got) != 0 {
			t.Errorf("after Run the active slots are %q", got)
		}
	})
}

// A store that hangs keeps Run for no longer than the cleanup timeout.
func TestShutdownOfAHangingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		release := make(chan struct{})
		defer close(release)
		hang := func() error { <-release; return errStore }
		s.OnCheckpoint = func(context.Context, backend.LeaseRecord, []byte, time.Duration) error { return hang() }
		s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error { return hang() }
		cfg := config(ids(20)...)
		cfg.CleanupTimeout = 2 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := newPool(t, leaseOf(t, s, "a"), cfg, untilDone([]byte("state"), nil)).Run(ctx); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("Run took %v, want the cleanup timeout after its context", took)
		}
	})
}

func TestRunInAnEndedContextDoesNothing(t *testing.T) {
	s := newStore()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newPool(t, leaseOf(t, s, "a"), config(ids(10)...), returning(nil, nil)).Run(ctx); err != nil {
		t.Errorf("Run returned %v", err)
	}
	if n := s.Acquires.Load(); n != 0 {
		t.Errorf("there were %d attempts to acquire", n)
	}
}

func TestOneRunAtATimeAndThenAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p := newPool(t, leaseOf(t, s, "a"), config("a", "b"), untilDone(nil, pool.Permanent(errWork)))
		time.AfterFunc(time.Second, func() {
			if err := p.Run(t.Context()); err == nil || errors.Is(err, worklease.ErrConfigInvalid) {
				t.Errorf("a second Run returned %v", err)
			}
			if got := p.ActiveSlots(); len(got) != 2 {
				t.Errorf("after a second Run the active slots are %q", got)
			}
		})
		runFor(t, p, time.Minute)
		acquires := s.Acquires.Load()
		runFor(t, p, time.Minute)
		if n := s.Acquires.Load() - acquires; n != 2 {
			t.Errorf("Run, called again, made %d attempts, want one for each slot", n)
		}
	})
}

// A function that is slow to notice that it was fenced keeps its slot: the work ID is not worked on
// twice in this process, though its lease is free.
func TestSlowFencedWorkIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		events := newRecorder()
		cfg := config(workID)
		cfg.Observer = events
		var running, calls atomic.Int64
		p := newPool(t, leaseOf(t, s, "a"), cfg, func(ctx context.Context, _ string, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			if running.Add(1) != 1 {
				t.Error("two functions run for one work ID")
			}
			defer running.Add(-1)
			if calls.Add(1) > 1 {
				awaitEnd(ctx)
				return nil, nil
			}
			takeOver(t, s.Backend, token, time.Second)
			awaitEnd(ctx)
			if cause := context.Cause(ctx); !errors.Is(cause, worklease.ErrFenced) {
				t.Errorf("the work was told to stop by %v", cause)
			}
			time.Sleep(10 * ttl)
			return []byte("too late"), nil
		})
		runFor(t, p, 20*ttl)
		events.wantEvents(t, "acquired", "lost", "acquired")
		got := events.of(workID)
		if got[1].at < 10*ttl || got[2].at != got[1].at {
			t.Errorf("lost at %v, acquired again at %v", got[1].at, got[2].at)
		}
	})
}

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
		store := newStore()
		all := ids(100)
		first := newPool(t, leaseOf(t, store, "first"), config(all...), untilDone(nil, nil))
		later := newPool(t, leaseOf(t, store, "later"), config(all...), untilDone(nil, nil))
		var running sync.WaitGroup
		running.Go(func() { runFor(t, first, time.Hour) })
		time.Sleep(10 * time.Second)
		running.Go(func() { runFor(t, later, 2*time.Hour) })
		time.Sleep(time.Hour - 20*time.Second)
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

// looksAtActive asks the pool, when a slot begins, whether it counts it.
type looksAtActive struct {
	pool.NoopObserver
	active func() []string
	missed atomic.Int64
}

func (l *looksAtActive) OnSlotAcquired(_ context.Context, e pool.SlotAcquiredEvent) {
	if !slices.Contains(l.active(), e.WorkID) {
		l.missed.Add(1)
	}
}

func TestSlotIsActiveFromItsEventUntilTheWorkReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		inRelease := make(chan struct{})
		s.OnRelease = func(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
			<-inRelease
			return s.Backend.Release(ctx, record, mode)
		}
		observer := &looksAtActive{}
		cfg := config("a", "b")
		cfg.Observer = observer
		var p *pool.Pool
		observer.active = func() []string { return p.ActiveSlots() }
		p = newPool(t, leaseOf(t, s, "h"), cfg, func(_ context.Context, id string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			if !slices.Contains(p.ActiveSlots(), id) {
				t.Errorf("%s is not active while it works", id)
			}
			return nil, nil
		})
		time.AfterFunc(time.Second, func() {
			if got := p.ActiveSlots(); len(got) != 0 {
				t.Errorf("while leases are released the active slots are %q", got)
			}
			close(inRelease)
		})
		runFor(t, p, 2*time.Second)
		if n := observer.missed.Load(); n != 0 {
			t.Errorf("%d slots were not active at their event", n)
		}
	})
}

// slowToHear is an observer that takes its time over OnSlotAcquired.
type slowToHear struct {
	recorder
	takes time.Duration
}

func (s *slowToHear) OnSlotAcquired(ctx context.Context, e pool.SlotAcquiredEvent) {
	s.recorder.OnSlotAcquired(ctx, e)
	time.Sleep(s.takes)
}

// Another process may have begun when the observer is through.
func TestNoWorkBeginsThatWasLostInItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error { return errStore }
		observer := &slowToHear{recorder: recorder{start: time.Now()}, takes: ttl}
		cfg := config(workID)
		cfg.Observer = observer
		p := newPool(t, leaseOf(t, s, "a"), cfg, func(context.Context, string, worklease.Token, worklease.Checkpoint) ([]byte, error) {
			t.Error("the work began")
			return nil, nil
		})
		time.AfterFunc(ttl/2, func() {
			if got := p.ActiveSlots(); len(got) != 1 {
				t.Errorf("during the event the active slots are %q", got)
			}
		})
		time.AfterFunc(ttl+backoff/2, func() {
			if got := p.ActiveSlots(); len(got) != 0 {
				t.Errorf("after the loss the active slots are %q", got)
			}
		})
		runFor(t, p, ttl+backoff-time.Nanosecond)
		observer.wantEvents(t, "acquired", "backoff")
		if err := observer.of(workID)[1].err; !errors.Is(err, worklease.ErrLeaseWindowExhausted) {
			t.Errorf("backs off from %v", err)
		}
	})
}

// A store that is down is asked once per BackoffInterval for each slot, and when it is back, what is free
// is begun within that.
func TestOutageOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, outage = 20, 10 * time.Minute
		s := newStore()
		var down atomic.Bool
		s.OnAcquire = func(ctx context.Context, id, holder string, ttl time.Duration) (backend.LeaseRecord, error) {
			if down.Load() {
				return backend.LeaseRecord{}, errStore
			}
			return s.Backend.Acquire(ctx, id, holder, ttl)
		}
		s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
			if down.Load() {
				return errStore
			}
			return s.Backend.Renew(ctx, record, ttl)
		}
		all := ids(slots)
		p := newPool(t, leaseOf(t, s, "a"), config(all...), untilDone(nil, errWork))
		time.AfterFunc(time.Minute, func() {
			down.Store(true)
			before := s.Acquires.Load()
			time.Sleep(outage)
			if n := s.Acquires.Load() - before; n > slots*int64(outage/backoff) || n < slots*int64((outage-2*ttl)/backoff) {
				t.Errorf("%d slots asked %d times in %v", slots, n, outage)
			}
			down.Store(false)
			time.Sleep(backoff)
			if got := p.ActiveSlots(); !slices.Equal(got, all) {
				t.Errorf("after the outage %d of %d slots are active", len(got), slots)
			}
		})
		runFor(t, p, 12*time.Minute)
	})
}
