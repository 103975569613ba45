package schedule_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aetomala/worklease/schedule"
)

// resolution is how exactly a store says when a lease ends.
const resolution = time.Millisecond

// story is all that is known of a task.
type story struct {
	task    task
	first   time.Time
	nodes   int
	runs    []run    // in the order in which they were begun
	answers []report // in no order
	killed  string   // the node that was
	cut     int      // the tick that it was killed in
}

func (s *story) tickOf(r run) int { return int(r.Slot.Sub(s.first).Round(interval) / interval) }

// inTime returns the ticks in which no node was late, nor in the one before: what one tick leaves behind is
// over when the next begins. Those that not every node was told of are none.
func (s *story) inTime() (ticks []int) {
	allowed := interval/2 - apart - 10*time.Millisecond // AtLeastFor is half of the interval
	answered := make(map[int]int)
	last := -1
	for _, a := range s.answers {
		if last = max(last, a.Tick); a.Answered.Sub(a.Struck) <= allowed {
			answered[a.Tick]++
		}
	}
	for tick := range last + 1 {
		if answered[tick] == s.nodes && (tick == 0 || answered[tick-1] == s.nodes) {
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// check returns an error for each promise that is broken.
func (s *story) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, a := range s.answers {
		if a.Error != "" {
			wrong("tick %d on %s: %s", a.Tick, a.Node, a.Error)
		}
	}
	begun, finished := make(map[int]int), make(map[int]int)
	for i, r := range s.runs {
		tick, cut := s.tickOf(r), r.Node == s.killed && r.Ended.IsZero()
		begun[tick]++
		if r.Ended.IsZero() && !cut {
			wrong("tick %d was not run to its end by %s", tick, r.Node)
		}
		if !r.Ended.IsZero() {
			finished[tick]++
		}
		if i == 0 {
			continue
		}
		before := s.runs[i-1]
		if r.Token == before.Token && r.Node == before.Node && s.task.Slots { // one is caught up
			if before.Ended.IsZero() || r.Started.Before(before.Ended) {
				wrong("%s ran ticks %d and %d at once", r.Node, s.tickOf(before), tick)
			}
			continue
		}
		taken := s.task.AtLeastFor
		if before.Ended.IsZero() {
			taken = s.task.AtMostFor // what a node that dies leaves behind
		}
		switch since := r.Acquired.Sub(before.Acquired); {
		case r.Token <= before.Token:
			wrong("tick %d on %s: token %d after %d", tick, r.Node, r.Token, before.Token)
		case r.Started.Before(before.Ended):
			wrong("%s began tick %d %v before %s had ended tick %d", r.Node, tick, before.Ended.Sub(r.Started), before.Node, s.tickOf(before))
		case since < taken-resolution:
			wrong("%s had tick %d %v after %s had tick %d", r.Node, tick, since, before.Node, s.tickOf(before))
		}
	}
	for tick, n := range finished {
		if s.task.Slots && n > 1 {
			wrong("the slot of tick %d was run %d times", tick, n)
		}
	}
	if s.killed == "" {
		for _, tick := range s.inTime() {
			if begun[tick] != 1 || finished[tick] != 1 {
				wrong("tick %d was run %d times, though no node was late", tick, begun[tick])
			}
		}
		return errors.Join(errs...)
	}
	wanted := map[schedule.CatchUp][2]int{schedule.CatchUpOnce: {2, 1}, schedule.CatchUpSkip: {1, 0}}[s.task.CatchUp]
	for tick, n := range begun {
		want := [2]int{1, 1}
		if tick == s.cut {
			want = wanted
		}
		if got := [2]int{n, finished[tick]}; got != want {
			wrong("tick %d was begun and finished %d times, want %d", tick, got, want)
		}
	}
	return errors.Join(errs...)
}

// recovered reports whether a slot after the one that was cut short was run.
func (s *story) recovered() bool {
	return slices.ContainsFunc(s.answers, func(a report) bool {
		return s.killed != "" && a.Outcome == schedule.OutcomeRan && a.Tick > s.cut
	})
}

// A log that breaks a promise is found to do so, and one that keeps all is not.
func TestCheckFindsBrokenPromises(t *testing.T) {
	first := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	at := func(tick, ms int) time.Time {
		return first.Add(time.Duration(tick)*interval + time.Duration(ms)*time.Millisecond)
	}
	ran := func(node string, token uint64, tick, ms int) run {
		return run{Node: node, Token: token, Slot: at(tick, 0), Acquired: at(tick, ms), Started: at(tick, ms+1), Ended: at(tick, ms+6)}
	}
	cut := func(r run) run {
		r.Ended = time.Time{}
		return r
	}
	late := func(r run, tick int) run { // run for another tick than its own
		r.Slot = at(tick, 0)
		return r
	}
	atLeast := task{AtMostFor: 2 * time.Second, AtLeastFor: interval / 2}
	slots := task{AtMostFor: 2 * time.Second, Slots: true}
	once, skip := slots, slots
	skip.CatchUp = schedule.CatchUpSkip
	for _, tc := range []struct {
		name   string
		task   task
		runs   []run
		killed string
		sound  bool
	}{
		{"one run a tick", atLeast, []run{ran("a", 1, 0, -300), ran("b", 2, 1, 0)}, "", true},
		{"two runs in a tick", atLeast, []run{ran("a", 1, 0, -300), ran("b", 2, 0, 0), ran("b", 3, 1, 0)}, "", false},
		{"two far enough apart, with nobody late", atLeast, []run{ran("a", 1, 0, -300), ran("b", 2, 0, 220), ran("b", 3, 1, 0)}, "", false},
		{"no run in a tick", atLeast, []run{ran("a", 1, 0, 0)}, "", false},
		{"two at once", slots, []run{ran("a", 1, 0, 0), ran("b", 2, 0, 3), ran("a", 3, 1, 0)}, "", false},
		{"a token that falls", slots, []run{ran("a", 2, 0, 0), ran("b", 1, 1, 0)}, "", false},
		{"one run a slot", slots, []run{ran("a", 1, 0, 0), ran("b", 2, 1, 0)}, "", true},
		{"a slot twice", slots, []run{ran("a", 1, 0, 0), ran("b", 2, 0, 300), ran("a", 3, 1, 0)}, "", false},
		{"a slot with no end", slots, []run{cut(ran("a", 1, 0, 0)), ran("b", 2, 1, 0)}, "", false},
		{"caught up", once, []run{cut(ran("a", 1, 0, 0)), late(ran("b", 2, 3, 0), 0), ran("b", 2, 3, 10)}, "a", true},
		{"caught up beside the next", once, []run{cut(ran("a", 1, 0, 0)), late(ran("b", 2, 3, 0), 0), ran("b", 2, 3, 2)}, "a", false},
		{"caught up too soon", once, []run{cut(ran("a", 1, 0, 0)), late(ran("b", 2, 1, 0), 0), ran("b", 2, 1, 10)}, "a", false},
		{"caught up twice", once, []run{cut(ran("a", 1, 0, 0)), late(ran("b", 2, 3, 0), 0), late(ran("c", 3, 4, 0), 0)}, "a", false},
		{"not caught up", once, []run{cut(ran("a", 1, 0, 0)), ran("b", 2, 3, 0)}, "a", false},
		{"skipped", skip, []run{cut(ran("a", 1, 0, 0)), ran("b", 2, 3, 0)}, "a", true},
		{"not skipped", skip, []run{cut(ran("a", 1, 0, 0)), late(ran("b", 2, 3, 0), 0), ran("b", 2, 3, 10)}, "a", false},
	} {
		s := &story{task: tc.task, first: first, nodes: 1, runs: tc.runs, killed: tc.killed}
		for tick := range 2 {
			s.answers = append(s.answers, report{Tick: tick, Struck: at(tick, 0), Answered: at(tick, 10)})
		}
		if err := s.check(); (err == nil) != tc.sound {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
