package history

import (
	"fmt"
	"time"
)

// Rule is a promise that a run can break.
type Rule string

// The rules.
const (
	Backwards      Rule = "a checkpoint went backwards"
	FencedSave     Rule = "a fenced holder saved a checkpoint"
	TokenOrder     Rule = "a later tenure had no higher token"
	WrongExit      Rule = "the successor read an exit that was not"
	FalselySafe    Rule = "a holder held itself safe in another's tenure"
	NotFinished    Rule = "a work ID did not finish"
	MissingEffect  Rule = "a step that was saved has no effect"
	RepeatedEffect Rule = "a step had its effect more than once"
	BadLog         Rule = "the log makes no sense"
)

// Rules lists them all.
var Rules = []Rule{Backwards, FencedSave, TokenOrder, WrongExit, FalselySafe, NotFinished, MissingEffect, RepeatedEffect, BadLog}

// Violation is a rule that was broken.
type Violation struct {
	Kind Rule
	Work string
	Text string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Work, v.Kind, v.Text) }

// History is all that is known of a run.
type History struct {
	Events  []Event
	Effects []Effect
	Rows    []Row // of the leases, when all is over
	// Works says of each work ID whether its effects and its checkpoints are committed together.
	Works map[string]bool
	TTL   time.Duration
	// Linger is how long after its end a call that failed may still reach the server.
	Linger time.Duration
	// Quiet is when the faults stopped, and Bound how long after that each work ID may take to finish.
	Quiet Instant
	Bound time.Duration
}

// Result is what a check found.
type Result struct {
	Violations []Violation
	Figures    Figures
}

// Figures say how much there was to check.
type Figures struct {
	Tenures   int
	Handoffs  int            // from one process to another
	Exits     map[string]int // read by successors
	Unheard   int            // of these, what only an acquisition explains that nobody heard of
	Steps     int            // saved, over all work IDs
	Effects   int
	Saves     int // acknowledged
	Doubtful  int // calls of which nobody knows whether they came about
	Claims    int
	LastToEnd time.Duration // from Quiet until the last work ID had finished
}

// Check looks for violations.
func Check(h History) Result {
	works, violations := worksOf(h.Events)
	for id := range h.Works {
		if works[id] == nil {
			works[id] = &work{id: id, finished: never}
		}
	}
	rows := make(map[string]Row)
	for _, row := range h.Rows {
		rows[row.Work] = row
	}
	effects := make(map[string][]Effect)
	for _, e := range h.Effects {
		effects[e.Work] = append(effects[e.Work], e)
	}
	figures := Figures{Exits: make(map[string]int), Effects: len(h.Effects)}
	for _, w := range sorted(works) {
		report := func(kind Rule, format string, args ...any) {
			violations = append(violations, Violation{Kind: kind, Work: w.id, Text: fmt.Sprintf(format, args...)})
		}
		w.checkTokens(report)
		w.checkClaims(report)
		figures.Unheard += w.checkExits(report, h.TTL, h.Linger)
		w.checkSaves(report)
		last := w.checkEnd(report, rows[w.id], h.Quiet, h.Bound)
		checkEffects(report, effects[w.id], last.Step, h.Works[w.id])
		w.count(&figures)
		figures.Steps += last.Step
		if w.finished != never {
			figures.LastToEnd = max(figures.LastToEnd, w.finished.Sub(h.Quiet))
		}
	}
	return Result{Violations: violations, Figures: figures}
}

// reporter takes in what is wrong.
type reporter func(kind Rule, format string, args ...any)

func (w *work) count(f *Figures) {
	f.Tenures += len(w.tenures)
	for _, a := range w.lost {
		if a.begun[1] != never {
			f.Doubtful++
		}
	}
	for i, t := range w.tenures {
		if i > 0 && w.tenures[i-1].holder != t.holder {
			f.Handoffs++
		}
		if t.read != nil {
			f.Exits[t.read.Exit]++
		}
		f.Claims += len(t.claims)
		if t.doubtful() {
			f.Doubtful++
		}
		for _, s := range t.saves {
			switch s.outcome {
			case Saved:
				f.Saves++
			case SaveLost:
				f.Doubtful++
			}
		}
	}
}
