package schedule_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/schedule"
)

func TestNewRefuses(t *testing.T) {
	if _, err := schedule.New(nil, schedule.Config{HolderID: "a"}); !errors.Is(err, worklease.ErrNilBackend) {
		t.Errorf("nil backend: %v", err)
	}
	if _, err := schedule.New(memory.New(), schedule.Config{}); !errors.Is(err, worklease.ErrConfigInvalid) {
		t.Errorf("no holder: %v", err)
	}
}

func TestRunRefusesTasksThatMakeNoSense(t *testing.T) {
	s := nodeOf(t, memory.New(), "a")
	for _, task := range []schedule.Task{
		{AtMostFor: time.Second},
		{Name: "a\x00", AtMostFor: time.Second},
		{Name: name},
		{Name: name, AtMostFor: time.Microsecond},
		{Name: name, AtMostFor: time.Second, AtLeastFor: -1},
		{Name: name, AtMostFor: time.Second, AtLeastFor: time.Second + 1},
		{Name: name, AtMostFor: time.Second, CatchUp: 9},
		{Name: name, AtMostFor: time.Second, Slot: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		r, err := s.Run(t.Context(), task, never(t))
		want(t, r, err, schedule.OutcomeNone, schedule.ErrTaskInvalid, worklease.ErrConfigInvalid)
	}
	r, err := s.Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Second}, nil)
	want(t, r, err, schedule.OutcomeNone, schedule.ErrFnRequired, worklease.ErrConfigInvalid)
	r, err = nodeOf(t, plain{memory.New()}, "a").Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Second, AtLeastFor: 1}, never(t))
	want(t, r, err, schedule.OutcomeNone, schedule.ErrAtLeastForUnsupported, worklease.ErrConfigInvalid)
}

// Ran, failed, held, too soon, and a store that is away are five different things.
func TestEveryOutcomeIsToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		a, b := nodeOf(t, store, "a"), nodeOf(t, store, "b")
		task := schedule.Task{Name: name, AtMostFor: time.Minute, AtLeastFor: 10 * time.Second}

		r, err := a.Run(t.Context(), task, func(ctx context.Context) error {
			held, err := b.Run(t.Context(), task, never(t))
			want(t, held, err, schedule.OutcomeHeld)
			if held.Holder != "a" || !held.Until.Equal(time.Now().Add(time.Minute)) {
				t.Errorf("held = %+v", held)
			}
			time.Sleep(time.Second)
			return errWork
		})
		want(t, r, err, schedule.OutcomeRan, errWork)
		if r.Holder != "a" || r.Took != time.Second || time.Since(r.Started) != time.Second {
			t.Errorf("ran = %+v", r)
		}

		r, err = b.Run(t.Context(), task, never(t))
		want(t, r, err, schedule.OutcomeTooSoon)
		if r.Holder != "a" || !r.Until.Equal(time.Now().Add(9*time.Second)) {
			t.Errorf("too soon = %+v", r)
		}

		store.acquire = errStore
		r, err = b.Run(t.Context(), task, never(t))
		want(t, r, err, schedule.OutcomeNone, errStore)
		store.acquire = backend.ErrLeaseHeld // a store that does not tell who
		r, err = b.Run(t.Context(), task, never(t))
		want(t, r, err, schedule.OutcomeHeld)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		store.acquire = nil
		r, err = b.Run(ctx, task, never(t))
		want(t, r, err, schedule.OutcomeNone, context.Canceled)
	})
}

// What the function says of other leases is no news of this one.
func TestErrorsOfTheFunctionAreItsOwn(t *testing.T) {
	for _, theirs := range []error{worklease.ErrFenced, worklease.ErrLeaseHeld} {
		store := memory.New()
		r, err := nodeOf(t, store, "a").Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute}, returns(theirs))
		if r.Outcome != schedule.OutcomeRan || err != theirs {
			t.Errorf("%v: %v, %v", theirs, r.Outcome, err)
		}
		if got := probe(t, store); got != schedule.OutcomeRan {
			t.Errorf("%v: the next run: %v", theirs, got)
		}
	}
}

func TestReleaseThatFailedIsAnErrorOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		store.release = errStore
		r, err := nodeOf(t, store, "a").Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute}, returns(errWork))
		want(t, r, err, schedule.OutcomeRan, errWork, errStore)
	})
}

// A long run keeps its name by renewing; with NoKeepAlive it ends with AtMostFor. Never do two run at once.
func TestLongRunIsNotStartedASecondTime(t *testing.T) {
	for _, noKeepAlive := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New()
			task := schedule.Task{Name: name, AtMostFor: 10 * time.Second, NoKeepAlive: noKeepAlive}
			var mu sync.Mutex
			running := 0
			long := func(ctx context.Context) error {
				mu.Lock()
				if running++; running > 1 {
					t.Error("two run at once")
				}
				mu.Unlock()
				defer func() { mu.Lock(); running--; mu.Unlock() }()
				select {
				case <-time.After(30 * time.Second):
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				start := time.Now()
				r, err := nodeOf(t, store, "a").Run(t.Context(), task, long)
				took := 30 * time.Second
				if noKeepAlive {
					took = 10 * time.Second
					want(t, r, err, schedule.OutcomeRan, worklease.ErrLeaseWindowExhausted)
				} else {
					want(t, r, err, schedule.OutcomeRan)
				}
				if time.Since(start) != took || r.Took != took {
					t.Errorf("keep alive %t: ran for %v", !noKeepAlive, r.Took)
				}
			})
			b, skips := nodeOf(t, store, "b"), 0
			for time.Sleep(time.Millisecond); ; time.Sleep(time.Second) {
				r, err := b.Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute}, nothing)
				if err != nil {
					t.Error(err)
				}
				if r.Outcome == schedule.OutcomeRan {
					break
				}
				skips++
			}
			wg.Wait()
			if wanted := map[bool]int{false: 30, true: 10}[noKeepAlive]; skips != wanted {
				t.Errorf("keep alive %t: %d skips, want %d", !noKeepAlive, skips, wanted)
			}
		})
	}
}

func TestLostLeaseEndsTheRunWithItsCause(t *testing.T) {
	for _, tc := range []struct{ renew, cause error }{
		{backend.ErrFenced, worklease.ErrFenced},
		{errStore, worklease.ErrLeaseWindowExhausted},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newFaulty()
			store.renew = tc.renew
			var cause error
			r, err := nodeOf(t, store, "a").Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute}, func(ctx context.Context) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				if _, ok := schedule.Held(ctx); ok {
					t.Error("a lost lease is said to be held")
				}
				return errWork
			})
			if !errors.Is(cause, tc.cause) {
				t.Errorf("cause = %v", cause)
			}
			want(t, r, err, schedule.OutcomeRan, errWork, tc.cause)
		})
	}
}

func TestRunEndsWithItsContextAndKeepsTheLeaseMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		ctx, cancel := context.WithCancelCause(t.Context())
		r, err := nodeOf(t, store, "a").Run(ctx, schedule.Task{Name: name, AtMostFor: time.Second}, func(ctx context.Context) error {
			cancel(errWork)
			<-ctx.Done()
			time.Sleep(5 * time.Second) // a slow drain
			if got := probe(t, store); got != schedule.OutcomeHeld {
				t.Errorf("while it drains: %v", got)
			}
			return context.Cause(ctx)
		})
		want(t, r, err, schedule.OutcomeRan, errWork)
		if got := probe(t, store); got != schedule.OutcomeRan {
			t.Errorf("afterwards: %v", got)
		}
	})
}

// hidden is a store that seems to have delayed releases, and has none.
type hidden struct{ *memory.Backend }

func (hidden) ReleaseAfter(context.Context, backend.LeaseRecord, backend.ExitMode, time.Duration) error {
	return errors.ErrUnsupported
}

func TestDelayedReleaseThatIsMissingAfterAllIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hidden{memory.New()}
		r, err := nodeOf(t, store, "a").Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute, AtLeastFor: time.Second}, nothing)
		want(t, r, err, schedule.OutcomeRan, schedule.ErrAtLeastForUnsupported, worklease.ErrConfigInvalid)
		time.Sleep(time.Minute - 1)
		if got := probe(t, store); got != schedule.OutcomeHeld {
			t.Errorf("within AtMostFor: %v", got)
		}
		time.Sleep(time.Nanosecond)
		if got := probe(t, store); got != schedule.OutcomeRan {
			t.Errorf("after AtMostFor: %v", got)
		}
	})
}

// A function for schedulers that know of neither contexts nor errors.
func TestFuncRunsTheTask(t *testing.T) {
	runs := 0
	s := nodeOf(t, memory.New(), "a")
	f := s.Func(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute}, func(context.Context) error { runs++; return errWork })
	f()
	f()
	if runs != 2 {
		t.Errorf("%d runs", runs)
	}
}
