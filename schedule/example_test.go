package schedule_test

import (
	"context"
	"fmt"
	"time"

	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/schedule"
)

// Two nodes start the same task: one runs it, and for AtLeastFor the other finds that it is too soon.
func ExampleScheduler_Run() {
	store := memory.New() // of one process; a cluster has one in PostgreSQL
	task := schedule.Task{Name: "nightly-report", AtMostFor: 10 * time.Minute, AtLeastFor: time.Minute}
	for _, node := range []string{"pod-1", "pod-2"} {
		s, err := schedule.New(store, schedule.Config{HolderID: node})
		if err != nil {
			panic(err)
		}
		result, err := s.Run(context.Background(), task, func(ctx context.Context) error {
			fmt.Println("reporting under a lease of", schedule.MustHold(ctx).HolderID())
			return nil
		})
		fmt.Printf("%s: %v, error %v, taken by %s\n", node, result.Outcome, err, result.Holder)
	}
	// Output:
	// reporting under a lease of pod-1
	// pod-1: ran, error <nil>, taken by pod-1
	// pod-2: too soon, error <nil>, taken by pod-1
}

// With a Slot, a node that is late does not run again what was run.
func ExampleTask_slot() {
	store := memory.New()
	due := time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)
	for _, node := range []string{"pod-1", "pod-2"} {
		s, err := schedule.New(store, schedule.Config{HolderID: node})
		if err != nil {
			panic(err)
		}
		task := schedule.Task{Name: "nightly-report", AtMostFor: 10 * time.Minute, Slot: due}
		result, err := s.Run(context.Background(), task, func(context.Context) error { return nil })
		fmt.Println(node, result.Outcome, err)
	}
	// Output:
	// pod-1 ran <nil>
	// pod-2 already ran <nil>
}

// A lock by hand, for code that is no function.
func ExampleScheduler_Lock() {
	s, err := schedule.New(memory.New(), schedule.Config{HolderID: "pod-1"})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	lock, err := s.Lock(ctx, schedule.Task{Name: "import", AtMostFor: time.Minute})
	if err != nil {
		panic(err) // matches worklease.ErrLeaseHeld if somebody has it
	}
	_, held := schedule.Held(lock.Context())
	fmt.Println("held:", held)
	fmt.Println("unlock:", lock.Unlock(ctx))
	// Output:
	// held: true
	// unlock: <nil>
}
