package history

import "fmt"

// State is what the work saves: how far it is, and who says so. Two attempts to save never have the same
// text.
type State struct {
	Step  int
	Token uint64
	Try   int // within the tenure
	Done  bool
}

// String is what is stored.
func (s State) String() string {
	done := "more"
	if s.Done {
		done = "done"
	}
	return fmt.Sprintf("step %d of token %d try %d, %s", s.Step, s.Token, s.Try, done)
}

// ParseState is the reverse of [State.String]. The empty text is the zero State.
func ParseState(text string) (State, error) {
	var s State
	if text == "" {
		return s, nil
	}
	var done string
	if _, err := fmt.Sscanf(text, "step %d of token %d try %d, %s", &s.Step, &s.Token, &s.Try, &done); err != nil {
		return State{}, fmt.Errorf("the state %q: %w", text, err)
	}
	s.Done = done == "done"
	if s.String() != text {
		return State{}, fmt.Errorf("the state %q is none", text)
	}
	return s, nil
}
