package worklease_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
)

// setClock is the clock of a store whose time passes at will.
type setClock struct{ now time.Time }

func (c *setClock) Now() time.Time { return c.now }

// Only work that was retired is swept, a week after it was.
func ExampleVacuum() {
	ctx := context.Background()
	clock := &setClock{now: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)}
	store := memory.New(memory.WithClock(clock))
	lease, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	for workID, mode := range map[string]worklease.ExitMode{
		"report-2025": worklease.ExitRetired,
		"report-2026": worklease.ExitFinished,
	} {
		token, err := lease.Acquire(ctx, workID)
		if err != nil {
			log.Fatal(err)
		}
		if err := lease.Release(ctx, token, mode); err != nil {
			log.Fatal(err)
		}
	}

	vacuum, err := worklease.NewVacuum(store, worklease.VacuumConfig{})
	if err != nil {
		log.Fatal(err)
	}
	const week = 7 * 24 * time.Hour
	for range 2 {
		deleted, err := vacuum.Sweep(ctx, worklease.SweepOptions{Retention: week})
		fmt.Println(deleted, err)
		clock.now = clock.now.Add(week + time.Second)
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
}
