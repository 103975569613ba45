package gocron_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/contrib/gocron"
	"github.com/aetomala/worklease/schedule"
)

// A Locker as every node has it, for gocron.WithDistributedLocker.
func ExampleNewLocker() {
	s, err := schedule.New(memory.New(), schedule.Config{HolderID: "pod-1"})
	if err != nil {
		panic(err)
	}
	locker := gocron.NewLocker(s, schedule.Task{Name: "cron/", AtMostFor: time.Hour, AtLeastFor: time.Minute}, nil)

	// What gocron does around a run:
	ctx := context.Background()
	lock, err := locker.Lock(ctx, "nightly-report")
	fmt.Println("lock:", err)
	fmt.Println("unlock:", lock.Unlock(ctx))
	_, err = locker.Lock(ctx, "nightly-report") // on another node
	fmt.Println("skipped:", errors.Is(err, worklease.ErrLeaseHeld))
	// Output:
	// lock: <nil>
	// unlock: <nil>
	// skipped: true
}
