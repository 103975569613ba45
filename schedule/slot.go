package schedule

import (
	"encoding/json"
	"fmt"
	"time"
)

// slots is what the checkpoint of a task's lease says of its slots.
type slots struct {
	finished time.Time // the last that was run
	begun    time.Time // the last that was begun
	again    bool      // for the second time
}

// stored is slots as stored. Other fields are of later versions.
type stored struct {
	Finished time.Time `json:"finished,omitzero"`
	Begun    time.Time `json:"begun,omitzero"`
	Again    bool      `json:"again,omitempty"`
}

func slotsFrom(state []byte) (slots, error) {
	if len(state) == 0 {
		return slots{}, nil
	}
	var s stored
	if err := json.Unmarshal(state, &s); err != nil {
		return slots{}, fmt.Errorf("the checkpoint is none of a scheduled task: %w", err)
	}
	return slots{finished: s.Finished, begun: s.Begun, again: s.Again}, nil
}

func (s slots) state() []byte {
	state, err := json.Marshal(stored{Finished: s.finished.UTC(), Begun: s.begun.UTC(), Again: s.again})
	if err != nil {
		panic(err) // no year that check lets through
	}
	return state
}

// cut reports whether the last slot that was begun was cut short.
func (s slots) cut() bool { return s.begun.After(s.finished) }

// begin makes slot the last that was begun.
func (s *slots) begin(slot time.Time) {
	s.begun, s.again = slot, s.cut() && slot.Equal(s.begun)
}

// due returns the slots to run when slot is asked for, and if there are none, why.
func (s slots) due(slot time.Time, catchUp CatchUp) (due []time.Time, why Outcome) {
	// What was cut short twice would be so for ever, and keep every later slot from being run.
	missed := s.cut() && (s.again || catchUp == CatchUpSkip)
	switch {
	case !slot.After(s.finished):
		return nil, OutcomeAlreadyRan
	case missed && slot.Equal(s.begun):
		return nil, OutcomeMissed
	case s.cut() && slot.Before(s.begun):
		return nil, OutcomeAlreadyRan // by its order
	case s.cut() && !missed && slot.After(s.begun):
		return []time.Time{s.begun, slot}, OutcomeNone
	}
	return []time.Time{slot}, OutcomeNone
}
