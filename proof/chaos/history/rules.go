package history

import (
	"slices"
	"time"
)

// checkTokens: a tenure that began when another was over, or at least begun, has the higher token.
func (w *work) checkTokens(report reporter) {
	// By token, none may have begun surely before one with a lower token: the latest beginning so far.
	var latest *tenure
	for _, t := range w.tenures {
		if latest != nil && t.begun[1] < latest.begun[0] {
			report(TokenOrder, "token %d of %s was given out before token %d of %s",
				t.token, t.holder, latest.token, latest.holder)
		}
		if latest == nil || t.begun[0] > latest.begun[0] {
			latest = t
		}
	}
}

// earliestAfter returns, for each tenure, the one of those with higher tokens that was first known to
// have begun; nil for the last.
func (w *work) earliestAfter() []*tenure {
	after := make([]*tenure, len(w.tenures))
	var earliest *tenure
	for i, t := range slices.Backward(w.tenures) {
		after[i] = earliest
		if earliest == nil || t.begun[1] < earliest.begun[1] {
			earliest = t
		}
	}
	return after
}

// checkClaims: while a holder holds itself safe, and has not begun to give the lease up, no other tenure
// begins.
func (w *work) checkClaims(report reporter) {
	after := w.earliestAfter()
	for i, t := range w.tenures {
		next := after[i]
		if next == nil || t.releasing <= next.begun[1] {
			continue
		}
		for _, claim := range t.claims {
			if until := max(claim.Until, claim.At); next.begun[1] < until {
				report(FalselySafe, "%s with token %d held itself safe for %v more after %s had got token %d",
					t.holder, t.token, until.Sub(next.begun[1]).Round(time.Microsecond), next.holder, next.token)
				break
			}
		}
	}
}

// checkExits: what a successor reads is what its predecessor declared, or that it declared nothing. The
// predecessor is the known tenure with the next lower token, or somebody who acquired the lease and never
// heard of it; how often only that explains what was read is returned.
func (w *work) checkExits(report reporter, ttl, linger time.Duration) (unheardOf int) {
	for i, t := range w.tenures {
		if t.read == nil {
			continue
		}
		exit, previous := t.read.Exit, t.read.Previous
		var p *tenure
		since := Instant(0)
		if i > 0 {
			p = w.tenures[i-1]
			since = p.begun[0]
		}
		if p == nil && exit == "none" && previous == "" {
			continue
		}
		if p != nil && previous == p.holder && slices.Contains(p.exits(), exit) {
			continue
		}
		unheard := slices.ContainsFunc(w.lost, func(a attempt) bool {
			return a.holder == previous && a.begun[0] < t.begun[1] && (a.begun[1] == never || a.begun[1].Add(linger) > since)
		})
		// A call that was sent twice may follow itself, once what its first run has taken has lapsed.
		if previous == t.holder && exit == "expired" && t.begun[1].Sub(t.begun[0]) >= ttl {
			unheard = true
		}
		if unheard && (exit == "expired" || exit == "abandoned") {
			unheardOf++
			continue
		}
		if p == nil {
			report(WrongExit, "%s with token %d, the first, read %q of %q", t.holder, t.token, exit, previous)
			continue
		}
		report(WrongExit, "%s with token %d read %q of %q; %s with token %d had left as %q",
			t.holder, t.token, exit, previous, p.holder, p.token, p.exits())
	}
	return unheardOf
}

// exits returns the ways in which the tenure may have ended.
func (t *tenure) exits() []string {
	switch {
	case t.exitIsSure:
		return []string{t.exit}
	case t.refused || t.releasing == never:
		return append([]string{"expired"}, t.inDoubt...)
	default:
		return append([]string{"expired", t.exit}, t.inDoubt...)
	}
}

// doubtful: nobody knows whether it was released.
func (t *tenure) doubtful() bool { return !t.exitIsSure && len(t.exits()) > 1 }

// checkSaves: no save succeeds once another tenure has begun, and what a successor reads is the last
// checkpoint that was acknowledged, or a later one that may have been saved.
func (w *work) checkSaves(report reporter) {
	after := w.earliestAfter()
	for i, t := range w.tenures {
		for _, s := range t.saves {
			if s.outcome == Saved && after[i] != nil && after[i].begun[1] < s.began {
				report(FencedSave, "%s with token %d saved %q, %v after %s had got token %d", t.holder, t.token,
					s.text, s.began.Sub(after[i].begun[1]).Round(time.Microsecond), after[i].holder, after[i].token)
			}
		}
	}
	for i, t := range w.tenures {
		if t.read != nil {
			w.checkState(report, t.read.State, i, after)
		}
	}
}

// checkState says whether state may be what was stored when the tenure of that index began; past the last
// one, when all was over.
func (w *work) checkState(report reporter, state string, index int, after []*tenure) {
	var (
		acked     *save
		doubtful  []*save
		highWater *save
	)
	for i, t := range w.tenures[:index] {
		for _, s := range t.saves {
			switch {
			case s.outcome == Saved:
				acked, doubtful = s, nil
				if highWater == nil || s.state.Step > highWater.state.Step {
					highWater = s
				}
			case s.outcome == SaveLost && (after[i] == nil || after[i].begun[1] >= s.began):
				doubtful = append(doubtful, s)
			}
		}
	}
	who := "at the end"
	if index < len(w.tenures) {
		who = w.tenures[index].holder
	}
	read, err := ParseState(state)
	if err != nil {
		report(Backwards, "%s: %v", who, err)
		return
	}
	if highWater != nil && read.Step < highWater.state.Step {
		report(Backwards, "%s read %q after %q had been acknowledged", who, state, highWater.text)
		return
	}
	if acked == nil && state == "" || acked != nil && state == acked.text {
		return
	}
	if !slices.ContainsFunc(doubtful, func(s *save) bool { return s.text == state }) {
		last := "nothing"
		if acked != nil {
			last = acked.text
		}
		report(Backwards, "%s read %q; acknowledged was %q, and in doubt were %d others", who, state, last, len(doubtful))
	}
}

// checkEnd: the work finished in time, and the row says so. It returns the last state.
func (w *work) checkEnd(report reporter, row Row, quiet Instant, bound time.Duration) State {
	switch {
	case w.finished == never:
		report(NotFinished, "nobody finished it")
	case w.finished.Sub(quiet) > bound:
		report(NotFinished, "it took %v, more than %v", w.finished.Sub(quiet), bound)
	}
	last, err := ParseState(row.State)
	if err != nil || !last.Done || row.Exit != "retired" {
		report(NotFinished, "the row says %q of %q", row.Exit, row.State)
	}
	w.checkState(report, row.State, len(w.tenures), w.earliestAfter())
	return last
}

// checkEffects: each step up to the last one has its effect; exactly one if effects and checkpoints are
// committed together, and then in the order of the tokens.
func checkEffects(report reporter, effects []Effect, last int, together bool) {
	byStep := make(map[int][]Effect)
	for _, e := range effects {
		byStep[e.Step] = append(byStep[e.Step], e)
	}
	highest := uint64(0)
	for step := 1; step <= last; step++ {
		found := byStep[step]
		if len(found) == 0 {
			report(MissingEffect, "step %d of %d", step, last)
		}
		if !together {
			continue
		}
		if len(found) > 1 {
			report(RepeatedEffect, "step %d has %d, by %v", step, len(found), found)
		}
		for _, e := range found {
			if e.Token < highest {
				report(FencedSave, "the effect of step %d has token %d of %s, a step before had %d", step, e.Token, e.Holder, highest)
			}
			highest = max(highest, e.Token)
		}
	}
	if together {
		for step, found := range byStep {
			if step > last {
				report(RepeatedEffect, "step %d has %d, but the work ended with step %d", step, len(found), last)
			}
		}
	}
}
