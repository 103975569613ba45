package schedule

import (
	"fmt"
	"time"
)

// Outcome says what became of a [Scheduler.Run].
type Outcome uint8

const (
	// OutcomeNone is the zero Outcome: an error says why nothing was run, nor found to be run elsewhere.
	OutcomeNone Outcome = iota
	// OutcomeRan says that the function was called here.
	OutcomeRan
	// OutcomeHeld says that another run has the name, or that the node of one died and AtMostFor is not over.
	OutcomeHeld
	// OutcomeTooSoon says that a run has ended, and its AtLeastFor has not. A store that does not tell
	// says OutcomeHeld.
	OutcomeTooSoon
	// OutcomeAlreadyRan says that the slot was run, or a later one.
	OutcomeAlreadyRan
	// OutcomeMissed says that the slot was begun and cut short, and is not run again: see [CatchUp].
	OutcomeMissed
)

var outcomeNames = [...]string{"none", "ran", "held", "too soon", "already ran", "missed"}

// String returns the outcome in words, such as "too soon".
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Result is what became of a [Scheduler.Run].
type Result struct {
	Outcome Outcome
	// Holder is who has the name, or had it last, if the store knows: this node with OutcomeRan.
	Holder string
	// Until is when the name is free unless it is held longer, on the store's clock, with OutcomeHeld and
	// OutcomeTooSoon if the store knows.
	Until time.Time
	// Started is when the function was called and Took for how long it ran, with OutcomeRan.
	Started time.Time
	Took    time.Duration
	// CaughtUp is the slot that had been cut short and was run first, if there was one.
	CaughtUp time.Time
}
