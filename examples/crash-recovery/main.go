// Crash-recovery shows what becomes of work whose holder dies half-way: a successor carries on from
// the last checkpoint, and the first holder, should it only have been slow, can no longer write.
//
// Leases lapse by the clock of the store. This store has one that the program sets, so that nothing
// here waits for a real TTL. The lease window of a holder is measured by the machine's own clock
// instead; it plays no part, since the first holder asks for no renewal and the second is done at once.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/worker"
)

const (
	workID = "import-2026"
	steps  = 6
	ttl    = 30 * time.Second
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	clock := &clock{now: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)}
	store := memory.New(memory.WithClock(clock))
	first, err := worklease.New(store, worklease.Config{TTL: ttl, HolderID: "host-1"})
	if err != nil {
		return err
	}
	second, err := worklease.New(store, worklease.Config{TTL: ttl, HolderID: "host-2"})
	if err != nil {
		return err
	}

	// The first holder does without a worker.Runner, which would record an exit. It just stops, as a
	// process does that is killed.
	zombie, err := first.Acquire(ctx, workID)
	if err != nil {
		return err
	}
	fmt.Printf("host-1: acquired %s\n", workID)
	for step := 1; step <= 3; step++ {
		fmt.Printf("host-1: step %d of %d\n", step, steps)
		if err := first.Checkpoint(ctx, zombie, []byte{byte(step)}); err != nil {
			return err
		}
	}
	fmt.Println("host-1: vanishes")

	_, err = second.Acquire(ctx, workID)
	held, ok := errors.AsType[*worklease.HeldError](err)
	if !ok {
		return fmt.Errorf("the second holder was not told to wait: %v", err)
	}
	fmt.Printf("host-2: has to wait, %s holds the lease for another %v\n", held.HolderID, held.ExpiresAt.Sub(clock.Now()))

	clock.advance(ttl)
	fmt.Printf("store:  %v pass, nobody renews\n", ttl)

	carryOn := func(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
		done := int(prior.State[0])
		fmt.Printf("host-2: acquired %s, previous exit %s, by %s after step %d\n", workID, prior.PrevExit, prior.PrevHolderID, done)
		for step := done + 1; step <= steps; step++ {
			fmt.Printf("host-2: step %d of %d\n", step, steps)
			if err := second.Checkpoint(ctx, token, []byte{byte(step)}); err != nil {
				return nil, err
			}
		}
		// Each step is saved already: nil leaves the last checkpoint as it is.
		return nil, worklease.ErrRetire
	}
	successor, err := worker.NewRunner(worker.RunnerConfig{Lease: second, WorkFn: carryOn})
	if err != nil {
		return err
	}
	if err := successor.Run(ctx, workID); err != nil {
		return err
	}
	fmt.Println("host-2: retired the work")

	// The first holder was not dead, only stopped for a while. It knows nothing of all this.
	err = first.Checkpoint(ctx, zombie, []byte{4})
	if !errors.Is(err, worklease.ErrFenced) {
		return fmt.Errorf("the late checkpoint was not refused: %v", err)
	}
	fmt.Println("host-1: is back, and its checkpoint of step 4 is refused: fenced")
	return nil
}

// clock is a time that only the program moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
