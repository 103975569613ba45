package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestWorkerThatBreaksDownIsAProblem(t *testing.T) {
	f := newFleet([]job{{Driver: "of no database"}}, 1)
	if err := f.start(); err != nil {
		t.Fatal(err)
	}
	f.wg.Wait()
	if len(f.problems) != 1 || !strings.Contains(f.problems[0], "of no database") || f.members[0].lives() != 1 {
		t.Errorf("after %d lives the problems are %q, want one that says why", f.members[0].lives(), f.problems)
	}
}

func TestWorkerThatIsKilledLivesAgain(t *testing.T) {
	f := newFleet([]job{{Driver: "pgx", Works: []assignment{{ID: "w"}}}}, 1)
	if err := f.start(); err != nil {
		t.Fatal(err)
	}
	m := f.members[0]
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		life := m.lives()
		if !m.signal(s) {
			t.Fatal("there is nobody to be killed")
		}
		for m.lives() == life {
			time.Sleep(time.Millisecond) // until it is so; the test's own timeout is the only bound
		}
	}
	f.stop()
	if len(f.problems) > 0 {
		t.Errorf("the problems are %q, want none", f.problems)
	}
}
