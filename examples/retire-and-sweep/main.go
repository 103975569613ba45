// Retire-and-sweep shows which rows leave the store. Work that is done for good says so with
// ErrRetire, and a sweep deletes its row after a while. Work that was left finished or abandoned stays
// for ever, since somebody may run it again; a lease that lapsed goes only if it is asked for.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/worker"
)

const week = 7 * 24 * time.Hour

var (
	workIDs = []string{"order-17", "report-daily", "import-2026", "order-18"}

	errNoInput = errors.New("no input yet")
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	clock := &clock{now: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)}
	store := memory.New(memory.WithClock(clock))
	lease, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		return err
	}
	runner, err := worker.NewRunner(worker.RunnerConfig{Lease: lease, WorkFn: work})
	if err != nil {
		return err
	}
	for _, workID := range workIDs[:3] {
		if err := runner.Run(ctx, workID); err != nil && !errors.Is(err, errNoInput) {
			return err
		}
	}
	// The process that works on this one dies.
	if _, err := lease.Acquire(ctx, "order-18"); err != nil {
		return err
	}
	fmt.Println("order-18: its holder vanishes")

	vacuum, err := worklease.NewVacuum(store, worklease.VacuumConfig{})
	if err != nil {
		return err
	}
	sweep := func(opts worklease.SweepOptions) error {
		deleted, err := vacuum.Sweep(ctx, opts)
		if err != nil {
			return err
		}
		fmt.Printf("sweep: retention of a week, lapsed leases too: %t: deleted %d\n", opts.IncludeExpired, deleted)
		return nil
	}
	if err := sweep(worklease.SweepOptions{Retention: week}); err != nil {
		return err
	}
	clock.now = clock.now.Add(week + time.Hour)
	fmt.Println("a week later")
	if err := sweep(worklease.SweepOptions{Retention: week}); err != nil {
		return err
	}
	// This throws checkpoints away that somebody might carry on from: a month is a better retention then.
	if err := sweep(worklease.SweepOptions{Retention: week, IncludeExpired: true}); err != nil {
		return err
	}
	// Whoever acquires what was swept finds it new.
	for _, workID := range workIDs {
		token, err := lease.Acquire(ctx, workID)
		if err != nil {
			return err
		}
		found, err := lease.ReadCheckpoint(ctx, token)
		if err != nil {
			return err
		}
		fmt.Printf("%s: previous exit %s, state %q\n", workID, found.PrevExit, found.State)
	}
	return nil
}

// work does a different kind of thing for each work ID.
func work(_ context.Context, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
	switch token.WorkID() {
	case "order-17":
		fmt.Println("order-17: shipped, which happens once: retired")
		return []byte("shipped"), worklease.ErrRetire
	case "report-daily":
		fmt.Println("report-daily: written, and due again tomorrow: finished")
		return []byte("up to January 2"), nil
	default:
		fmt.Printf("%s: cannot go on: abandoned\n", token.WorkID())
		return []byte("half of it"), errNoInput
	}
}

// clock is a time that only the program moves, so that nobody waits for a week.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }
