package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/schedule"
)

// slotRuns is a function that records its slots.
type slotRuns struct {
	ran  []time.Time
	then func() error // nil: success
}

func (s *slotRuns) fn(ctx context.Context) error {
	slot, _ := schedule.SlotOf(ctx)
	s.ran = append(s.ran, slot)
	if s.then != nil {
		return s.then()
	}
	return nil
}

func at(n int) time.Time { return time.Date(2026, 3, 29, 1, 59, n, 0, time.UTC) }

func TestSlotThatWasRunIsNotRunAgain(t *testing.T) {
	store := memory.New()
	var runs slotRuns
	run := func(holderID string, slot time.Time) (schedule.Result, error) {
		return nodeOf(t, store, holderID).Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute, Slot: slot}, runs.fn)
	}
	runs.then = func() error { return errWork } // a run that failed is a run
	r, err := run("a", at(2))
	want(t, r, err, schedule.OutcomeRan, errWork)
	for _, slot := range []time.Time{at(2), at(2).In(time.FixedZone("", 3600)), at(1)} {
		r, err = run("b", slot)
		want(t, r, err, schedule.OutcomeAlreadyRan)
		if r.Holder == "" {
			t.Error("it is not said who had it")
		}
	}
	runs.then = nil
	r, err = run("b", at(3))
	want(t, r, err, schedule.OutcomeRan)
	if !slices.Equal(runs.ran, []time.Time{at(2), at(3)}) {
		t.Errorf("slots run: %v", runs.ran)
	}
}

// A leader that dies just before, at, or after a tick: the slot is known to the next node, also where
// nodes restart more often than the interval.
func TestSlotThatWasCutShortIsCaughtUpOrSkipped(t *testing.T) {
	for _, tc := range []struct {
		name    string
		catchUp schedule.CatchUp
		next    int // the slot that is asked for by the next node
		outcome schedule.Outcome
		ran     []time.Time
		caught  time.Time
	}{
		{"the same slot, once", schedule.CatchUpOnce, 2, schedule.OutcomeRan, []time.Time{at(2)}, time.Time{}},
		{"a later slot, once", schedule.CatchUpOnce, 4, schedule.OutcomeRan, []time.Time{at(2), at(4)}, at(2)},
		{"an earlier slot, once", schedule.CatchUpOnce, 1, schedule.OutcomeAlreadyRan, nil, time.Time{}},
		{"the same slot, skipped", schedule.CatchUpSkip, 2, schedule.OutcomeMissed, nil, time.Time{}},
		{"a later slot, skipped", schedule.CatchUpSkip, 4, schedule.OutcomeRan, []time.Time{at(4)}, time.Time{}},
	} {
		for how, end := range map[string]func(context.CancelFunc) error{
			"panic":  func(context.CancelFunc) error { panic("killed") },
			"cancel": func(cancel context.CancelFunc) error { cancel(); return errWork },
		} {
			t.Run(tc.name+" after a "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memory.New()
					task := schedule.Task{Name: name, AtMostFor: time.Minute, CatchUp: tc.catchUp, Slot: at(2)}
					func() {
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						defer func() { _ = recover() }()
						_, _ = nodeOf(t, store, "a").Run(ctx, task, func(context.Context) error { return end(cancel) })
					}()
					time.Sleep(time.Minute)
					var runs slotRuns
					task.Slot = at(tc.next)
					r, err := nodeOf(t, store, "b").Run(t.Context(), task, runs.fn)
					want(t, r, err, tc.outcome)
					if !slices.Equal(runs.ran, tc.ran) || !r.CaughtUp.Equal(tc.caught) {
						t.Errorf("ran %v, want %v; caught up %v", runs.ran, tc.ran, r.CaughtUp)
					}
					task.Slot = at(5)
					r, err = nodeOf(t, store, "b").Run(t.Context(), task, nothing)
					want(t, r, err, schedule.OutcomeRan)
					if tc.outcome == schedule.OutcomeRan && !r.CaughtUp.IsZero() {
						t.Errorf("caught up twice: %v", r.CaughtUp)
					}
				})
			})
		}
	}
}

// A node told to stop while it catches up finishes that slot, and leaves its own to the next.
func TestNodeThatIsToldToStopLeavesItsSlotToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		task := schedule.Task{Name: name, AtMostFor: time.Minute, Slot: at(1)}
		func() {
			defer func() { _ = recover() }()
			_, _ = nodeOf(t, store, "a").Run(t.Context(), task, func(context.Context) error { panic("killed") })
		}()
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		runs := slotRuns{then: func() error { cancel(); return nil }}
		task.Slot = at(2)
		r, err := nodeOf(t, store, "b").Run(ctx, task, runs.fn)
		want(t, r, err, schedule.OutcomeRan, context.Canceled)
		runs.then = nil
		r, err = nodeOf(t, store, "c").Run(t.Context(), task, runs.fn)
		want(t, r, err, schedule.OutcomeRan)
		if !slices.Equal(runs.ran, []time.Time{at(1), at(2)}) {
			t.Errorf("ran %v", runs.ran)
		}
	})
}

// Trouble with the store never looks like a skip, nor a run like one that is recorded.
func TestSlotThatCannotBeRecordedIsAnError(t *testing.T) {
	task := schedule.Task{Name: name, AtMostFor: time.Minute, Slot: at(1)}
	store := newFaulty()
	store.checkpoints = 0
	r, err := nodeOf(t, store, "a").Run(t.Context(), task, never(t))
	want(t, r, err, schedule.OutcomeNone, errStore)

	store.checkpoints = 1 // the end is not recorded
	var runs slotRuns
	r, err = nodeOf(t, store, "a").Run(t.Context(), task, runs.fn)
	want(t, r, err, schedule.OutcomeRan, errStore)
	store.checkpoints = -1
	r, err = nodeOf(t, store, "a").Run(t.Context(), task, runs.fn)
	want(t, r, err, schedule.OutcomeRan)
	if len(runs.ran) != 2 {
		t.Errorf("ran %v", runs.ran)
	}
}

func TestCheckpointOfSomebodyElseIsNoSlot(t *testing.T) {
	store := memory.New()
	lease, err := worklease.New(store, worklease.Config{TTL: time.Minute, HolderID: "other"})
	if err != nil {
		t.Fatal(err)
	}
	token, err := lease.Acquire(t.Context(), name)
	if err == nil {
		err = errors.Join(lease.Checkpoint(t.Context(), token, []byte("cursor 7")), lease.Release(t.Context(), token, worklease.ExitFinished))
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := nodeOf(t, store, "a").Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute, Slot: at(1)}, never(t))
	if r.Outcome != schedule.OutcomeNone || err == nil {
		t.Errorf("%v, %v", r.Outcome, err)
	}
}

// A slot whose run kills node after node is run twice, and keeps no later one from being run.
func TestSlotThatIsCutShortAgainIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		task := schedule.Task{Name: name, AtMostFor: time.Minute}
		var ran []time.Time
		bad := func(ctx context.Context) error {
			slot, _ := schedule.SlotOf(ctx)
			ran = append(ran, slot)
			if slot.Equal(at(1)) {
				panic("killed")
			}
			return nil
		}
		ask := func(n int) (r schedule.Result, err error) {
			defer func() { _ = recover() }()
			task.Slot = at(n)
			return nodeOf(t, store, fmt.Sprint("node-", n)).Run(t.Context(), task, bad)
		}
		for _, n := range []int{1, 2} {
			_, _ = ask(n) // panics in the slot 1
			time.Sleep(time.Minute)
		}
		r, err := ask(1)
		want(t, r, err, schedule.OutcomeMissed)
		r, err = ask(2) // it was not begun, and is not late yet
		want(t, r, err, schedule.OutcomeRan)
		if !r.CaughtUp.IsZero() {
			t.Errorf("caught up once more: %v", r.CaughtUp)
		}
		r, err = ask(1)
		want(t, r, err, schedule.OutcomeAlreadyRan)
		if !slices.Equal(ran, []time.Time{at(1), at(1), at(2)}) {
			t.Errorf("ran %v", ran)
		}
	})
}

// The same slot asked for again is no other case.
func TestSlotThatIsAskedForAgainIsRunTwiceAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		task := schedule.Task{Name: name, AtMostFor: time.Minute, Slot: at(1)}
		runs := 0
		for range 4 {
			func() {
				defer func() { _ = recover() }()
				r, err := nodeOf(t, store, "a").Run(t.Context(), task, func(context.Context) error { runs++; panic("killed") })
				want(t, r, err, schedule.OutcomeMissed)
			}()
			time.Sleep(time.Minute)
		}
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
	})
}

// In the night in which summer time ends a time of day comes twice, and is two slots.
func TestHourThatComesTwiceHasTwoSlots(t *testing.T) {
	store := memory.New()
	summer, winter := time.FixedZone("CEST", 2*3600), time.FixedZone("CET", 3600)
	for _, node := range []string{"a", "b"} {
		for _, zone := range []*time.Location{summer, winter} {
			slot := time.Date(2026, 10, 25, 2, 30, 0, 0, zone)
			r, err := nodeOf(t, store, node).Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute, Slot: slot}, nothing)
			want(t, r, err, map[string]schedule.Outcome{"a": schedule.OutcomeRan, "b": schedule.OutcomeAlreadyRan}[node])
		}
	}
}
