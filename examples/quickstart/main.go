// Quickstart runs the same work twice. The second run is told how the first one ended, and gets what
// it saved.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/worker"
)

func main() {
	lease, err := worklease.New(memory.New(), worklease.Config{
		TTL:      30 * time.Second, // how long the work waits for us if we die
		HolderID: "host-1",
	})
	if err != nil {
		log.Fatal(err)
	}
	runner, err := worker.NewRunner(worker.RunnerConfig{Lease: lease, WorkFn: work})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if err := runner.Run(context.Background(), "report-2026"); err != nil {
			log.Fatal(err)
		}
	}
}

// work runs while this process holds the lease. What it returns is saved for the next run.
func work(_ context.Context, _ worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
	fmt.Printf("previous exit: %s, saved state: %q\n", prior.PrevExit, prior.State)
	return []byte("step 1 done"), nil
}
