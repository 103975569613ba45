package history

import (
	"slices"
	"testing"
)

// The holders of the story, and what they save.
var (
	first  = HolderID(0, 1)
	second = HolderID(1, 1)
	third  = HolderID(0, 2)

	state1 = State{Step: 1, Token: 1, Try: 1}.String()
	state2 = State{Step: 2, Token: 1, Try: 2}.String()
	state3 = State{Step: 3, Token: 2, Try: 1}.String()
	state4 = State{Step: 4, Token: 3, Try: 1}.String()
	state5 = State{Step: 4, Token: 3, Try: 2, Done: true}.String()
)

// story is a run in which all went well: the first holder was killed, the second declared that it had
// finished, the third did what was left. The tests name its events by their instants.
func story() *History {
	about := func(holder string, token uint64, e Event) Event {
		e.Holder, e.Token, e.Work = holder, token, "w"
		return e
	}
	var events []Event
	tell := func(holder string, token uint64, told ...Event) {
		for _, e := range told {
			events = append(events, about(holder, token, e))
		}
	}
	tell(first, 0, Event{At: 10, Kind: Acquiring})
	tell(first, 1,
		Event{At: 20, Kind: Acquired},
		Event{At: 22, Kind: Read, Exit: "none"},
		Event{At: 25, Kind: Claim, Until: 110},
		Event{At: 30, Kind: Saving, State: state1},
		Event{At: 40, Kind: Saved, State: state1},
		Event{At: 50, Kind: Saving, State: state2},
		Event{At: 60, Kind: Saved, State: state2})
	tell(second, 0, Event{At: 130, Kind: Acquiring})
	tell(second, 2,
		Event{At: 140, Kind: Acquired},
		Event{At: 145, Kind: Read, State: state2, Exit: "expired", Previous: first},
		Event{At: 150, Kind: Claim, Until: 230},
		Event{At: 160, Kind: Saving, State: state3},
		Event{At: 170, Kind: Saved, State: state3},
		Event{At: 180, Kind: Releasing, Exit: "finished"},
		Event{At: 190, Kind: Released, Exit: "finished"},
		Event{At: 195, Kind: WorkReturned})
	tell(third, 0, Event{At: 200, Kind: Acquiring})
	tell(third, 3,
		Event{At: 210, Kind: Acquired},
		Event{At: 212, Kind: Read, State: state3, Exit: "finished", Previous: second},
		Event{At: 220, Kind: Saving, State: state4},
		Event{At: 230, Kind: Saved, State: state4},
		Event{At: 240, Kind: Saving, State: state5},
		Event{At: 250, Kind: Saved, State: state5},
		Event{At: 260, Kind: Releasing, Exit: "retired"},
		Event{At: 270, Kind: Released, Exit: "retired"})
	tell(third, 0, Event{At: 280, Kind: Finished})
	return &History{
		Events: events,
		Effects: []Effect{
			{Work: "w", Step: 1, Token: 1, Holder: first}, {Work: "w", Step: 2, Token: 1, Holder: first},
			{Work: "w", Step: 3, Token: 2, Holder: second}, {Work: "w", Step: 4, Token: 3, Holder: third},
		},
		Rows:   []Row{{Work: "w", Holder: third, Token: 3, State: state5, Exit: "retired"}},
		Works:  map[string]bool{"w": true},
		TTL:    100,
		Linger: 50,
		Quiet:  200,
		Bound:  100,
	}
}

// change calls f with the event of that instant.
func (h *History) change(at Instant, f func(*Event)) {
	i := slices.IndexFunc(h.Events, func(e Event) bool { return e.At == at })
	f(&h.Events[i])
}

func (h *History) drop(at Instant) {
	h.Events = slices.DeleteFunc(h.Events, func(e Event) bool { return e.At == at })
}

func (h *History) add(e Event) {
	e.Work = "w"
	h.Events = append(h.Events, e)
}

func TestEveryViolationIsFound(t *testing.T) {
	for _, c := range []struct {
		what   string
		doctor func(h *History)
		want   Rule
	}{
		{"a successor reads an older checkpoint", func(h *History) {
			h.change(145, func(e *Event) { e.State = state1 })
		}, Backwards},
		{"a successor reads no checkpoint", func(h *History) {
			h.change(145, func(e *Event) { e.State = "" })
		}, Backwards},
		{"a successor reads what nobody has saved", func(h *History) {
			h.change(145, func(e *Event) { e.State = State{Step: 2, Token: 1, Try: 3}.String() })
		}, Backwards},
		{"a successor reads what is no state", func(h *History) {
			h.change(145, func(e *Event) { e.State = "step 2" })
		}, Backwards},
		{"a successor reads what was refused", func(h *History) {
			h.change(60, func(e *Event) { e.Kind = SaveRefused })
		}, Backwards},
		{"a successor reads what was in doubt before the last acknowledged one", func(h *History) {
			h.change(40, func(e *Event) { e.Kind = SaveLost })
			h.change(145, func(e *Event) { e.State = state1 })
		}, Backwards},
		{"a successor reads what nobody has saved, while something else is in doubt", func(h *History) {
			h.change(60, func(e *Event) { e.Kind = SaveLost })
			h.change(145, func(e *Event) { e.State = State{Step: 2, Token: 1, Try: 3}.String() })
		}, Backwards},
		{"a successor reads an earlier step that was tried after a later one", func(h *History) {
			earlier := State{Step: 1, Token: 2, Try: 1}.String()
			h.change(160, func(e *Event) { e.State = earlier })
			h.change(170, func(e *Event) { e.Kind, e.State = SaveLost, earlier })
			h.change(212, func(e *Event) { e.State = earlier })
		}, Backwards},
		{"a successor reads what was in doubt before the same step was acknowledged", func(h *History) {
			again := State{Step: 1, Token: 1, Try: 2}.String()
			h.change(40, func(e *Event) { e.Kind = SaveLost })
			h.change(50, func(e *Event) { e.State = again })
			h.change(60, func(e *Event) { e.State = again })
			h.change(145, func(e *Event) { e.State = state1 })
		}, Backwards},
		{"a successor reads what its predecessor tried after another tenure had begun", func(h *History) {
			again := State{Step: 3, Token: 1, Try: 3}.String()
			h.add(Event{At: 150, Kind: Saving, Holder: first, Token: 1, State: again})
			h.add(Event{At: 155, Kind: SaveLost, Holder: first, Token: 1, State: again})
			h.drop(160)
			h.drop(170)
			h.change(212, func(e *Event) { e.State = again })
		}, Backwards},
		{"at the end an older checkpoint is stored", func(h *History) {
			h.Rows[0].State = State{Step: 3, Token: 3, Try: 1, Done: true}.String()
			h.Effects = h.Effects[:3]
		}, Backwards},
		{"a holder saves after another has begun", func(h *History) {
			late := State{Step: 2, Token: 1, Try: 3}.String()
			h.add(Event{At: 141, Kind: Saving, Holder: first, Token: 1, State: late})
			h.add(Event{At: 142, Kind: Saved, Holder: first, Token: 1, State: late})
			h.change(145, func(e *Event) { e.State = late })
		}, FencedSave},
		{"an effect is committed by a holder whose successor has gone on", func(h *History) {
			h.Effects[3].Token = 1
		}, FencedSave},
		{"a later tenure has a lower token", func(h *History) {
			// The second tenure becomes the third, by its token alone.
			for i := range h.Events {
				if e := &h.Events[i]; e.Token == 2 && (e.Kind == Acquired || e.Kind == Claim) {
					e.Token = 4
				}
			}
			h.Events = slices.DeleteFunc(h.Events, func(e Event) bool { return e.Token == 2 })
			h.change(212, func(e *Event) { e.State, e.Exit, e.Previous = state2, "expired", first })
			h.drop(150)
		}, TokenOrder},
		{"two tenures have the same token", func(h *History) {
			h.add(Event{At: 300, Kind: Acquired, Holder: HolderID(2, 1), Token: 3})
		}, TokenOrder},
		{"a successor reads an exit of one who was killed", func(h *History) {
			h.change(145, func(e *Event) { e.Exit = "finished" })
		}, WrongExit},
		{"a successor reads another exit than the one declared", func(h *History) {
			h.change(212, func(e *Event) { e.Exit = "abandoned" })
		}, WrongExit},
		{"a declared exit is lost", func(h *History) {
			h.change(212, func(e *Event) { e.Exit = "expired" })
		}, WrongExit},
		{"a refused release is read", func(h *History) {
			h.change(190, func(e *Event) { e.Kind = NotReleased })
		}, WrongExit},
		{"a successor reads that there was nobody", func(h *History) {
			h.change(145, func(e *Event) { e.Exit, e.Previous = "none", "" })
		}, WrongExit},
		{"a successor reads the wrong predecessor", func(h *History) {
			h.change(145, func(e *Event) { e.Previous = third })
		}, WrongExit},
		{"the first reads that there was somebody", func(h *History) {
			h.change(22, func(e *Event) { e.Exit, e.Previous = "expired", second })
		}, WrongExit},
		{"an acquisition that nobody heard of is said to have finished", func(h *History) {
			h.add(Event{At: 191, Kind: Acquiring, Holder: first})
			h.add(Event{At: 192, Kind: AcquireLost, Holder: first})
			h.change(212, func(e *Event) { e.Previous = first })
		}, WrongExit},
		{"an acquisition follows itself before it can have lapsed", func(h *History) {
			h.change(200, func(e *Event) { e.At = 111 })
			h.change(212, func(e *Event) { e.Exit, e.Previous = "expired", third })
		}, WrongExit},
		{"an acquisition that nobody heard of is blamed long after", func(h *History) {
			h.add(Event{At: 1, Kind: Acquiring, Holder: third})
			h.add(Event{At: 2, Kind: AcquireLost, Holder: third})
			h.change(212, func(e *Event) { e.Exit, e.Previous = "expired", third })
		}, WrongExit},
		{"a holder holds itself safe until after another has begun", func(h *History) {
			h.change(25, func(e *Event) { e.Until = 141 })
		}, FalselySafe},
		{"a holder holds itself safe when another has begun", func(h *History) {
			h.add(Event{At: 141, Kind: Claim, Holder: first, Token: 1, Until: 120})
		}, FalselySafe},
		{"a holder holds itself safe, another begins, then it releases", func(h *History) {
			h.change(25, func(e *Event) { e.Until = 141 })
			h.add(Event{At: 142, Kind: Releasing, Holder: first, Token: 1, Exit: "finished"})
			h.add(Event{At: 143, Kind: NotReleased, Holder: first, Token: 1, Exit: "finished"})
		}, FalselySafe},
		{"a tenure that somebody else was in between", func(h *History) {
			h.change(25, func(e *Event) { e.Until = 205 }) // longer than the second's whole tenure
		}, FalselySafe},
		{"nobody finishes", func(h *History) { h.drop(280) }, NotFinished},
		{"it takes too long to finish", func(h *History) { h.Bound = 70 }, NotFinished},
		{"the last exit is not that of work that is done", func(h *History) { h.Rows[0].Exit = "finished" }, NotFinished},
		{"a work ID that nobody has told of", func(h *History) { h.Works["other"] = false }, NotFinished},
		{"a step has no effect", func(h *History) {
			h.Effects = slices.Delete(h.Effects, 1, 2)
		}, MissingEffect},
		{"a release that was refused is read, and not the one in doubt before it", func(h *History) {
			h.change(190, func(e *Event) { e.Kind = ReleaseLost })
			h.add(Event{At: 191, Kind: Releasing, Holder: second, Token: 2, Exit: "abandoned"})
			h.add(Event{At: 192, Kind: NotReleased, Holder: second, Token: 2, Exit: "abandoned"})
			h.change(212, func(e *Event) { e.Exit = "abandoned" })
		}, WrongExit},
		{"a step has no effect, the others may have several", func(h *History) {
			h.Works["w"] = false
			h.Effects[1].Step = 1
		}, MissingEffect},
		{"a step has two effects", func(h *History) {
			h.Effects = append(h.Effects, Effect{Work: "w", Step: 4, Token: 3, Holder: third})
		}, RepeatedEffect},
		{"an effect was committed without its checkpoint", func(h *History) {
			h.Effects = append(h.Effects, Effect{Work: "w", Step: 5, Token: 3, Holder: third})
		}, RepeatedEffect},
		{"a save under a token that nobody got", func(h *History) {
			h.change(220, func(e *Event) { e.Token = 9 })
			h.drop(230)
			h.drop(240)
			h.drop(250)
		}, BadLog},
		{"the end of a save that has not begun", func(h *History) { h.drop(30) }, BadLog},
	} {
		t.Run(c.what, func(t *testing.T) {
			h := story()
			c.doctor(h)
			found := Check(*h).Violations
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Kind == c.want }) {
				t.Errorf("the check has not found that %s; it reports %v", c.want, found)
			}
		})
	}
}

func TestWhatMayHappenIsNoViolation(t *testing.T) {
	for _, c := range []struct {
		what   string
		doctor func(h *History)
	}{
		{"all goes well", func(*History) {}},
		{"a save in doubt is read", func(h *History) {
			h.change(60, func(e *Event) { e.Kind = SaveLost })
		}},
		{"a save whose holder was killed is read", func(h *History) { h.drop(60) }},
		{"a save in doubt is not read", func(h *History) {
			h.change(60, func(e *Event) { e.Kind = SaveLost })
			h.change(145, func(e *Event) { e.State = state1 })
		}},
		{"the first save of all is in doubt", func(h *History) {
			h.change(40, func(e *Event) { e.Kind = SaveLost })
			h.drop(50)
			h.drop(60)
			h.change(145, func(e *Event) { e.State = "" })
		}},
		{"a release in doubt is read", func(h *History) {
			h.change(190, func(e *Event) { e.Kind = ReleaseLost })
		}},
		{"a release in doubt is not read", func(h *History) {
			h.change(190, func(e *Event) { e.Kind = ReleaseLost })
			h.change(212, func(e *Event) { e.Exit = "expired" })
		}},
		{"a release whose holder was killed is not read", func(h *History) {
			h.drop(190)
			h.change(212, func(e *Event) { e.Exit = "expired" })
		}},
		{"a release is refused", func(h *History) {
			h.change(190, func(e *Event) { e.Kind = NotReleased })
			h.change(212, func(e *Event) { e.Exit = "expired" })
		}},
		{"a release is refused, as the one in doubt before it came about", func(h *History) {
			h.change(190, func(e *Event) { e.Kind = ReleaseLost })
			h.add(Event{At: 191, Kind: Releasing, Holder: second, Token: 2, Exit: "finished"})
			h.add(Event{At: 192, Kind: NotReleased, Holder: second, Token: 2, Exit: "finished"})
		}},
		{"a release of another kind is refused, as the one in doubt before it came about", func(h *History) {
			h.change(190, func(e *Event) { e.Kind = ReleaseLost })
			h.add(Event{At: 191, Kind: Releasing, Holder: second, Token: 2, Exit: "abandoned"})
			h.add(Event{At: 192, Kind: NotReleased, Holder: second, Token: 2, Exit: "abandoned"})
		}},
		{"an acquisition that nobody heard of comes between", func(h *History) {
			h.add(Event{At: 191, Kind: Acquiring, Holder: first})
			h.add(Event{At: 192, Kind: AcquireLost, Holder: first})
			h.change(212, func(e *Event) { e.Exit, e.Previous = "expired", first })
		}},
		{"the holder of an acquisition was killed before it heard of it", func(h *History) {
			h.add(Event{At: 191, Kind: Acquiring, Holder: first})
			h.change(212, func(e *Event) { e.Exit, e.Previous = "expired", first })
		}},
		{"an acquisition follows itself", func(h *History) {
			h.change(200, func(e *Event) { e.At = 110 })
			h.change(212, func(e *Event) { e.Exit, e.Previous = "expired", third })
		}},
		{"a successor begins before the window of one who has released would have ended", func(h *History) {
			h.change(150, func(e *Event) { e.Until = 300 })
		}},
		{"a save is acknowledged late", func(h *History) {
			h.change(60, func(e *Event) { e.At = 142 }) // it was begun, and may have happened, in time
		}},
		{"a holder reads its own checkpoint", func(h *History) {
			h.add(Event{At: 255, Kind: Read, Holder: third, Token: 3, State: state5, Exit: "finished", Previous: second})
		}},
		{"acquisitions overlap", func(h *History) {
			h.change(200, func(e *Event) { e.At = 20 })
		}},
		{"effects are repeated where they are not committed with the checkpoint", func(h *History) {
			h.Works["w"] = false
			h.Effects = append(h.Effects, Effect{Work: "w", Step: 2, Token: 2, Holder: second},
				Effect{Work: "w", Step: 5, Token: 1, Holder: first})
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			h := story()
			c.doctor(h)
			for _, v := range Check(*h).Violations {
				t.Error(v)
			}
		})
	}
}

func TestFigures(t *testing.T) {
	f := Check(*story()).Figures
	if f.Tenures != 3 || f.Handoffs != 2 || f.Steps != 4 || f.Effects != 4 || f.Saves != 5 || f.Claims != 2 || f.LastToEnd != 80 {
		t.Errorf("the figures are %+v", f)
	}
	if f.Exits["none"] != 1 || f.Exits["expired"] != 1 || f.Exits["finished"] != 1 {
		t.Errorf("the exits are %v", f.Exits)
	}
}

func TestRecovery(t *testing.T) {
	fault := func(worker int, start, end Instant) Fault {
		return Fault{Kind: "pause", Worker: worker, Start: start, End: end}
	}
	for _, c := range []struct {
		what   string
		faults []Fault
		worst  Instant
		count  int
	}{
		{"of the holder", []Fault{fault(0, 70, 80)}, 90, 1},
		{"of the server", []Fault{fault(-1, 70, 80)}, 90, 1},
		{"of somebody else", []Fault{fault(1, 70, 80)}, 0, 0},
		{"of nobody yet", []Fault{fault(0, 5, 8)}, 0, 0},
		{"with no checkpoint to come", []Fault{fault(0, 251, 252)}, 0, 0},
		{"while a rival had a fault too", []Fault{fault(0, 70, 80), fault(1, 75, 100)}, 0, 0},
		{"after which a rival had a fault", []Fault{fault(0, 70, 80), fault(1, 85, 90)}, 0, 0},
		{"after a fault of a rival", []Fault{fault(0, 70, 80), fault(1, 75, 79)}, 90, 1},
		{"before a fault of a rival", []Fault{fault(0, 70, 80), fault(1, 171, 175)}, 90, 2},
		{"while a worker that has no part in it had one", []Fault{fault(0, 70, 80), fault(2, 75, 100)}, 90, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := Recover(*story(), c.faults)
			if r.Worst["pause"] != c.worst.Sub(0) || r.Count["pause"] != c.count {
				t.Errorf("Recover = %+v, want %d of them and %d ns at worst", r, c.count, c.worst)
			}
		})
	}
}

func TestStatesAreReadAsTheyWereWritten(t *testing.T) {
	for _, s := range []State{{}, {Step: 12, Token: 1 << 60, Try: 3}, {Step: 1, Token: 2, Try: 3, Done: true}} {
		if found, err := ParseState(s.String()); err != nil || found != s {
			t.Errorf("ParseState(%q) = %+v, %v", s.String(), found, err)
		}
	}
	for _, text := range []string{"step", "step 1 of token 2 try 3, lots", "step 1 of token 2 try 3, more of it"} {
		if found, err := ParseState(text); err == nil {
			t.Errorf("ParseState(%q) = %+v, want an error", text, found)
		}
	}
}
