package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// never is later than all that happens.
const never = Instant(1<<63 - 1)

// tenure is what is known of one holder's time with one work ID.
type tenure struct {
	token      uint64
	holder     string
	begun      [2]Instant // the call that acquired
	read       *Event
	claims     []Event
	saves      []*save
	releasing  Instant // never, if no release was begun
	exit       string  // that the last release was to declare
	exitIsSure bool
	refused    bool     // the last release was
	inDoubt    []string // what releases that failed, and may have come about, were to declare
}

// save is one attempt to save a checkpoint.
type save struct {
	state   State
	text    string
	began   Instant
	ended   Instant
	outcome Kind // Saved, SaveRefused, or SaveLost if it is not known
}

// attempt is an acquisition of which nobody knows whether it came about.
type attempt struct {
	holder string
	begun  [2]Instant
}

// work is all that is known of one work ID.
type work struct {
	id       string
	tenures  []*tenure // by token
	lost     []attempt
	finished Instant
}

// worksOf orders the events by what they are about. Those of one holder come in the order in which they
// were written. It returns what makes no sense as it stands.
func worksOf(events []Event) (works map[string]*work, nonsense []Violation) {
	works = make(map[string]*work)
	begun := make(map[[2]string]Instant) // of the attempt under way, by holder and work ID
	byToken := make(map[string]map[uint64]*tenure)
	for i := range events {
		e := &events[i]
		if e.Work == "" {
			continue
		}
		w := works[e.Work]
		if w == nil {
			w = &work{id: e.Work, finished: never}
			works[e.Work], byToken[e.Work] = w, make(map[uint64]*tenure)
		}
		bad := func(what string) {
			nonsense = append(nonsense, Violation{Kind: BadLog, Work: e.Work, Text: fmt.Sprintf("%s: %+v", what, *e)})
		}
		key := [2]string{e.Holder, e.Work}
		switch e.Kind {
		case Acquiring:
			begun[key] = e.At
			continue
		case AcquireLost:
			w.lost = append(w.lost, attempt{holder: e.Holder, begun: [2]Instant{begun[key], e.At}})
			delete(begun, key)
			continue
		case Acquired:
			if other := byToken[e.Work][e.Token]; other != nil {
				nonsense = append(nonsense, Violation{Kind: TokenOrder, Work: e.Work,
					Text: fmt.Sprintf("%s and %s have both got token %d", other.holder, e.Holder, e.Token)})
				continue
			}
			t := &tenure{token: e.Token, holder: e.Holder, begun: [2]Instant{begun[key], e.At}, releasing: never}
			delete(begun, key)
			w.tenures, byToken[e.Work][e.Token] = append(w.tenures, t), t
			continue
		case Finished:
			w.finished = min(w.finished, e.At)
			continue
		case WorkReturned:
			continue
		}
		t := byToken[e.Work][e.Token]
		if t == nil || t.holder != e.Holder {
			bad("no such tenure")
			continue
		}
		if err := t.add(e); err != nil {
			bad(err.Error())
		}
	}
	for key, at := range begun { // the holder was killed, or found the lease held the last time
		works[key[1]].lost = append(works[key[1]].lost, attempt{holder: key[0], begun: [2]Instant{at, never}})
	}
	for _, w := range works {
		slices.SortFunc(w.tenures, func(a, b *tenure) int { return cmp.Compare(a.token, b.token) })
	}
	return works, nonsense
}

func (t *tenure) add(e *Event) error {
	switch e.Kind {
	case Read:
		if t.read == nil { // it stays the same; later ones see what this tenure has saved
			t.read = e
		}
	case Claim:
		t.claims = append(t.claims, *e)
	case Saving:
		state, err := ParseState(e.State)
		if err != nil {
			return err
		}
		t.saves = append(t.saves, &save{state: state, text: e.State, began: e.At, ended: never, outcome: SaveLost})
	case Saved, SaveRefused, SaveLost:
		if len(t.saves) == 0 || t.saves[len(t.saves)-1].text != e.State {
			return fmt.Errorf("the end of a save that was not begun last")
		}
		s := t.saves[len(t.saves)-1]
		s.ended, s.outcome = e.At, e.Kind
	case Releasing:
		t.releasing, t.exit, t.refused = min(t.releasing, e.At), e.Exit, false
	case Released:
		t.exitIsSure = true
	case NotReleased: // since one in doubt came about before it, perhaps
		t.refused = true
	case ReleaseLost:
		t.inDoubt = append(t.inDoubt, e.Exit)
	default:
		return fmt.Errorf("unknown kind of event")
	}
	return nil
}

func sorted(works map[string]*work) []*work {
	return slices.SortedFunc(maps.Values(works), func(a, b *work) int { return cmp.Compare(a.id, b.id) })
}
