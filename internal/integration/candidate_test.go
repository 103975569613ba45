package integration_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/leader"
)

// The process of a candidate is this test binary again, with these in its environment.
const (
	candidateDriver = "WORKLEASE_TEST_CANDIDATE_DRIVER"
	candidateDSN    = "WORKLEASE_TEST_CANDIDATE_DSN"

	electionTTL   = time.Second
	electionPause = 200 * time.Millisecond // of either kind
)

// What a candidate tells, with the time it did so.
const (
	failed   = "failed"   // an attempt, for another reason than the next
	refused  = "refused"  // an attempt, since another leads
	began    = "began"    // its function was called: read after the lease was acquired
	believed = "believed" // it had a lease window: read before it was asked for
	unseated = "unseated" // OnLost was called
	stopped  = "stopped"  // Run has returned as it should
)

// event is one line that a candidate prints. Its time is of the wall clock, the one clock that processes
// of a machine have in common.
type event struct {
	candidate int
	what      string
	at        time.Time
	token     uint64
}

func tell(what string, at time.Time, token uint64) {
	fmt.Printf("%s %d %d\n", what, at.UnixNano(), token)
}

// standInChild stands for election until standard input ends, in a process that is a candidate's: then it
// is told to stop, or its parent is gone.
func standInChild(t *testing.T) bool {
	driver := os.Getenv(candidateDriver)
	if driver == "" {
		return false
	}
	store, err := postgres.New(pgtest.Open(t, driver, os.Getenv(candidateDSN)))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := worklease.New(store, worklease.Config{
		TTL: electionTTL, HolderID: fmt.Sprint(os.Getpid()), Observer: candidateObserver{},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var token uint64
	err = leader.Run(ctx, lease, "election", leader.Config{
		IdleInterval: electionPause, BackoffInterval: electionPause,
		OnElected: func(_ context.Context, t worklease.Token) { token = t.FencingToken() },
		OnLost:    func(_ context.Context, t worklease.Token) { tell(unseated, time.Now(), t.FencingToken()) },
	}, func(ctx context.Context) error {
		tell(began, time.Now(), token)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			now := time.Now()
			if _, ok := worklease.LeaseWindow(ctx); ok {
				tell(believed, now, token)
			}
			<-tick.C
		}
		return context.Cause(ctx)
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	tell(stopped, time.Now(), 0)
	return true
}

type candidateObserver struct{ worklease.NoopObserver }

func (candidateObserver) OnAcquire(_ context.Context, e worklease.AcquireEvent) {
	switch {
	case errors.Is(e.Err, worklease.ErrLeaseHeld):
		tell(refused, time.Now(), 0)
	case e.Err != nil:
		tell(failed, time.Now(), 0)
	}
}

// candidate is a child of the test.
type candidate struct {
	cmd   *exec.Cmd
	stdin io.Closer
	read  chan struct{} // closed when it has told all
}

// stop tells the process to stop, and fails the test if it does not do so in good order.
func (c *candidate) stop(t *testing.T) {
	t.Helper()
	if err := c.stdin.Close(); err != nil {
		t.Error(err)
	}
	<-c.read
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("a candidate: %v", err)
	}
}

// election is what all candidates have told so far.
type election struct {
	mu     sync.Mutex
	events []event
}

// start runs the calling test again, as a candidate. The process ends with the test or before.
func (e *election) start(t *testing.T, number int, driver, dsn string) *candidate {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), candidateDriver+"="+driver, candidateDSN+"="+dsn)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &candidate{cmd: cmd, stdin: stdin, read: make(chan struct{})}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, unless the test has failed
		<-c.read
		_ = cmd.Wait()
	})
	go func() {
		defer close(c.read)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			told, nanos := event{candidate: number}, int64(0)
			if n, _ := fmt.Sscanf(lines.Text(), "%s %d %d", &told.what, &nanos, &told.token); n != 3 {
				continue // package testing has something to say, too
			}
			told.at = time.Unix(0, nanos)
			e.mu.Lock()
			e.events = append(e.events, told)
			e.mu.Unlock()
		}
	}()
	return c
}

// count returns how many events since a time are such.
func (e *election) count(since time.Time, such func(event) bool) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.events {
		if !event.at.Before(since) && such(event) {
			n++
		}
	}
	return n
}

// term waits for the first term that began after a time.
func (e *election) term(t *testing.T, since time.Time) (first event) {
	t.Helper()
	await(t, "a leader", func() bool {
		return e.count(since, func(event event) bool {
			if event.what != began {
				return false
			}
			if first.what == "" || event.at.Before(first.at) {
				first = event
			}
			return true
		}) > 0
	})
	return first
}
