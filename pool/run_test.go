package pool_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
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
