package integration_test

import (
	"slices"
	"testing"
	"time"

	"github.com/aetomala/worklease/internal/pgtest"
)

// Three processes stand for election while their server goes away three times, in three ways, for longer
// than the TTL. Each time one of them leads soon after, never two at once, and none drops out.
func TestProcessesElectALeaderAfterEveryOutage(t *testing.T) {
	if standInChild(t) {
		return
	}
	t.Parallel()
	server := pgtest.New(t)
	migrate(t, server.Admin(t))
	started := time.Now()
	told := new(election)
	var candidates []*candidate
	for i, driver := range []string{"pgx", "pq", "pgx"} {
		candidates = append(candidates, told.start(t, i, driver, server.DSN()))
	}
	everyCandidate := func(what string, n int, since time.Time, whats ...string) {
		t.Helper()
		for i := range candidates {
			await(t, what, func() bool {
				return told.count(since, func(e event) bool {
					return e.candidate == i && slices.Contains(whats, e.what)
				}) >= n
			})
		}
	}
	told.term(t, started)
	everyCandidate("each to stand", 1, started, refused, began)

	for _, end := range []struct {
		name string
		call func()
	}{{"stop", server.Stop}, {"stop immediate", server.StopImmediate}, {"kill", server.Kill}} {
		end.call()
		down := wallClock()
		everyCandidate("each to find the server down", 3, down, failed)
		await(t, "the outage to last", func() bool { return time.Since(down) > 3*electionTTL/2 })
		if n := told.count(down.Add(electionTTL), is(believed)); n != 0 {
			t.Errorf("%s: %d times somebody believed to lead a TTL after the server was gone", end.name, n)
		}
		server.Start()
		back := wallClock()
		first := told.term(t, down)
		took := first.at.Sub(back)
		t.Logf("after %s candidate %d leads within %v", end.name, first.candidate, took.Round(time.Millisecond))
		if took > 15*time.Second { // two, where nothing else needs the machine
			t.Errorf("%s: nobody has led for %v", end.name, took)
		}
		everyCandidate("each to stand again", 1, back, refused, began)
	}

	// A leader that stops in good order is followed by another at once.
	last := told.last(began)
	stopping := wallClock()
	candidates[last.candidate].stop(t)
	await(t, "another leader", func() bool { return told.last(believed).candidate != last.candidate })
	t.Logf("candidate %d led %v after another had been told to stop",
		told.last(began).candidate, told.last(began).at.Sub(stopping).Round(time.Millisecond))
	for i, c := range candidates {
		if i != last.candidate {
			c.stop(t)
		}
		if n := told.count(started, func(e event) bool { return e.candidate == i && e.what == stopped }); n != 1 {
			t.Errorf("candidate %d has dropped out", i)
		}
	}
	told.mustBeSound(t)
	if wall, real := wallClock().Sub(started.Round(0)), time.Since(started); (wall - real).Abs() > time.Millisecond {
		t.Logf("the clock that the processes have in common was moved by %v", wall-real)
	}
}

// wallClock is what the times of events can be compared with.
func wallClock() time.Time { return time.Now().Round(0) }

func is(what string) func(event) bool { return func(e event) bool { return e.what == what } }

// last returns the latest event of a kind.
func (e *election) last(what string) (latest event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.events {
		if event.what == what && event.at.After(latest.at) {
			latest = event
		}
	}
	return latest
}

// mustBeSound checks that nobody believed to lead when a later term had begun, and that nobody tried again
// without a pause.
func (e *election) mustBeSound(t *testing.T) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	terms, beliefs, losses := make(map[uint64]event), make(map[uint64]event), make(map[uint64]int)
	attempts, count := make(map[int]time.Time), 0
	for _, event := range e.events { // in order for each candidate
		switch event.what {
		case began:
			terms[event.token] = event
			delete(attempts, event.candidate) // what follows a term may be the pause of another kind
		case believed:
			beliefs[event.token], count = event, count+1
		case unseated:
			losses[event.token]++
		case failed, refused:
			before, ok := attempts[event.candidate]
			// The clocks of the pause and of the event may go a little differently.
			if pause := event.at.Sub(before); ok && pause < electionPause*9/10 {
				t.Errorf("candidate %d tried again after %v", event.candidate, pause)
			}
			attempts[event.candidate] = event.at
		}
	}
	for token, belief := range beliefs {
		for later, term := range terms {
			if later > token && !belief.at.Before(term.at) {
				t.Errorf("candidate %d believed to lead with token %d, %v after %d began to with %d",
					belief.candidate, token, belief.at.Sub(term.at), term.candidate, later)
			}
		}
	}
	for token, n := range losses {
		if n != 1 {
			t.Errorf("OnLost was called %d times for token %d", n, token)
		}
	}
	if len(terms) < 5 || len(losses) < 3 || count < 100 {
		t.Errorf("%d terms, %d losses and %d beliefs show little", len(terms), len(losses), count)
	}
	t.Logf("%d terms, %d lost, %d times somebody believed to lead", len(terms), len(losses), count)
}
