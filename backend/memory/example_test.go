package memory_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
)

// A holder gives up and the next one carries on from its checkpoint.
func Example() {
	ctx := context.Background()
	store := memory.New()

	first, err := store.Acquire(ctx, "invoices", "host-1", time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Checkpoint(ctx, first, []byte("page 7"), time.Minute); err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Release(ctx, first, backend.ExitAbandoned); err != nil {
		fmt.Println(err)
		return
	}

	second, err := store.Acquire(ctx, "invoices", "host-2", time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	prior, err := store.ReadCheckpoint(ctx, second)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s, %v by %s\n", prior.State, prior.PrevExit, prior.PrevHolderID)

	err = store.Checkpoint(ctx, first, []byte("page 8"), time.Minute)
	fmt.Println("the first holder is fenced:", errors.Is(err, backend.ErrFenced))
	// Output:
	// page 7, abandoned by host-1
	// the first holder is fenced: true
}

type stoppedClock struct{ now time.Time }

func (c *stoppedClock) Now() time.Time { return c.now }

// A test moves the time itself instead of waiting for a lease to lapse.
func ExampleWithClock() {
	ctx := context.Background()
	clock := &stoppedClock{now: time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)}
	store := memory.New(memory.WithClock(clock))

	if _, err := store.Acquire(ctx, "invoices", "host-1", time.Minute); err != nil {
		fmt.Println(err)
		return
	}
	_, err := store.Acquire(ctx, "invoices", "host-2", time.Minute)
	fmt.Println("held:", errors.Is(err, backend.ErrLeaseHeld))

	clock.now = clock.now.Add(time.Minute)
	record, err := store.Acquire(ctx, "invoices", "host-2", time.Minute)
	fmt.Println(record.HolderID, record.ExpiresAt.Format(time.TimeOnly), err)
	// Output:
	// held: true
	// host-2 12:02:00 <nil>
}
