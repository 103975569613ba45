package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/worker"
)

func Example() {
	lease, err := worklease.New(memory.New(), worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		panic(err)
	}
	runner, err := worker.NewRunner(worker.RunnerConfig{
		Lease: lease,
		WorkFn: func(_ context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
			fmt.Printf("%s works on %s, left by the last holder as: %v\n", token.HolderID(), token.WorkID(), prior.PrevExit)
			return []byte("42 rows"), nil
		},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(runner.Run(context.Background(), "report-2026"))
	fmt.Println(runner.Run(context.Background(), "report-2026"))
	// Output:
	// host-1 works on report-2026, left by the last holder as: none
	// <nil>
	// host-1 works on report-2026, left by the last holder as: finished
	// <nil>
}

// A holder that gives up returns what it has done; the next one carries on from there.
func ExampleRunner_Run_resume() {
	store := memory.New()
	diskFull := true
	importRows := func(_ context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
		done, _ := strconv.Atoi(string(prior.State)) // no state: 0
		fmt.Printf("%s has %d rows, previous exit: %v\n", token.HolderID(), done, prior.PrevExit)
		for done < 5 {
			if done == 3 && diskFull {
				return strconv.AppendInt(nil, int64(done), 10), errors.New("disk full")
			}
			done++
		}
		return strconv.AppendInt(nil, int64(done), 10), nil
	}
	for _, holderID := range []string{"host-1", "host-2"} {
		lease, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: holderID})
		if err != nil {
			panic(err)
		}
		runner, err := worker.NewRunner(worker.RunnerConfig{Lease: lease, WorkFn: importRows})
		if err != nil {
			panic(err)
		}
		fmt.Println(runner.Run(context.Background(), "import"))
		diskFull = false
	}
	// Output:
	// host-1 has 0 rows, previous exit: none
	// disk full
	// host-2 has 3 rows, previous exit: abandoned
	// <nil>
}

// Work that is done for good says so, and those who find it later can tell.
func ExampleRunner_Run_retire() {
	lease, err := worklease.New(memory.New(), worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		panic(err)
	}
	runner, err := worker.NewRunner(worker.RunnerConfig{
		Lease: lease,
		WorkFn: func(_ context.Context, _ worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
			if prior.PrevExit == worklease.ExitRetired {
				fmt.Printf("nothing to do: %s\n", prior.State)
				return nil, worklease.ErrRetire // still retired
			}
			fmt.Println("migrating")
			return []byte("migrated to version 7"), worklease.ErrRetire
		},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(runner.Run(context.Background(), "migration-7"))
	fmt.Println(runner.Run(context.Background(), "migration-7"))
	// Output:
	// migrating
	// <nil>
	// nothing to do: migrated to version 7
	// <nil>
}
