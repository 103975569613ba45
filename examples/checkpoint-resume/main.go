// Checkpoint-resume shows work whose progress is a struct. The first run fails in the middle and is
// recorded as abandoned; the second reads the struct back and carries on behind the last row that was
// imported.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/checkpoint"
	"github.com/aetomala/worklease/worker"
)

// progress is what a successor needs to carry on: a position and a running total, not the rows.
type progress struct {
	LastRow int `json:"last_row"`
	Sum     int `json:"sum"`
}

var (
	codec = checkpoint.JSON() // or any other checkpoint.Codec
	rows  = []int{50, 20, 70, 10, 30, 60, 40, 80}

	errDiskFull = errors.New("disk full")
)

// saveEvery is how many rows are imported between two checkpoints: after a crash, so many at most are
// imported twice.
const saveEvery = 2

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	store := memory.New()
	disk := &disk{free: 5}
	for _, host := range []string{"host-1", "host-2"} {
		lease, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: host})
		if err != nil {
			return err
		}
		runner, err := worker.NewRunner(worker.RunnerConfig{Lease: lease, WorkFn: importRows(lease, disk)})
		if err != nil {
			return err
		}
		switch err := runner.Run(ctx, "import-2026"); {
		case errors.Is(err, errDiskFull):
			fmt.Printf("%s: gives up: %v\n", host, err)
			disk.free = len(rows) // somebody tidies up
		case err != nil:
			return err
		default:
			fmt.Printf("%s: finished\n", host)
		}
	}
	return nil
}

func importRows(lease worklease.Lease, disk *disk) worker.WorkFn {
	return func(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
		// The first holder finds no state, and gets the zero progress.
		p, err := checkpoint.Decode[progress](codec, prior.State)
		if err != nil {
			return nil, err
		}
		fmt.Printf("%s: previous exit %s, state %q, starts at row %d\n", token.HolderID(), prior.PrevExit, prior.State, p.LastRow+1)
		for p.LastRow < len(rows) {
			if err := disk.write(rows[p.LastRow]); err != nil {
				// What was done since the last checkpoint is not lost: the state that is returned is saved,
				// also along with an error.
				state, encodeErr := checkpoint.Encode(codec, p)
				return state, errors.Join(err, encodeErr)
			}
			p.Sum += rows[p.LastRow]
			p.LastRow++
			fmt.Printf("%s: row %d, the sum is %d\n", token.HolderID(), p.LastRow, p.Sum)
			if p.LastRow%saveEvery != 0 {
				continue
			}
			state, err := checkpoint.Encode(codec, p)
			if err != nil {
				return nil, err
			}
			if err := lease.Checkpoint(ctx, token, state); err != nil {
				return nil, err
			}
			fmt.Printf("%s: saved %s\n", token.HolderID(), state)
		}
		return checkpoint.Encode(codec, p)
	}
}

// disk is where the rows go. It is full after some.
type disk struct{ free int }

func (d *disk) write(int) error {
	if d.free == 0 {
		return errDiskFull
	}
	d.free--
	return nil
}
