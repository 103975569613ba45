package pool_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/pool"
)

// Partitions that are done for good retire, and the pool ends with the last one.
func Example() {
	lease, err := worklease.New(memory.New(), worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		panic(err)
	}
	index := func(_ context.Context, workID string, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
		fmt.Printf("%s indexes %s\n", token.HolderID(), workID)
		return []byte("indexed"), worklease.ErrRetire
	}
	p, err := pool.New(lease, pool.Config{WorkIDs: []string{"customers", "invoices", "orders"}}, index)
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Run(context.Background()))
	// Unordered output:
	// host-1 indexes customers
	// host-1 indexes invoices
	// host-1 indexes orders
	// <nil>
}

// A process that is told to stop saves where it is; the next one carries on from there.
func ExamplePool_Run_resume() {
	store := memory.New()
	for _, holderID := range []string{"host-1", "host-2"} {
		lease, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: holderID})
		if err != nil {
			panic(err)
		}
		ctx, shutdown := context.WithCancel(context.Background())
		consume := func(ctx context.Context, workID string, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
			offset, _ := strconv.Atoi(string(prior.State)) // no state: 0
			fmt.Printf("%s reads %s from %d on, left as: %v\n", token.HolderID(), workID, offset, prior.PrevExit)
			for ctx.Err() == nil {
				if offset++; offset%100 == 0 {
					shutdown() // as SIGTERM would, by signal.NotifyContext
					<-ctx.Done()
				}
			}
			return strconv.AppendInt(nil, int64(offset), 10), context.Cause(ctx)
		}
		p, err := pool.New(lease, pool.Config{WorkIDs: []string{"partition-0"}}, consume)
		if err != nil {
			panic(err)
		}
		fmt.Println(p.Run(ctx))
	}
	// Output:
	// host-1 reads partition-0 from 0 on, left as: none
	// <nil>
	// host-2 reads partition-0 from 100 on, left as: abandoned
	// <nil>
}

// What fails is tried again, until it says that there is no point.
func ExamplePermanent() {
	lease, err := worklease.New(memory.New(), worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		panic(err)
	}
	attempts := 0
	load := func(context.Context, string, worklease.Token, worklease.Checkpoint) ([]byte, error) {
		if attempts++; attempts < 3 {
			return nil, errors.New("connection refused")
		}
		return nil, pool.Permanent(errors.New("the file is corrupt"))
	}
	p, err := pool.New(lease, pool.Config{
		WorkIDs:         []string{"import"},
		BackoffInterval: time.Millisecond,
		Observer:        printer{},
	}, load)
	if err != nil {
		panic(err)
	}
	fmt.Println(errors.Is(p.Run(context.Background()), pool.ErrAllSlotsDead))
	// Output:
	// import: connection refused, again in 1ms
	// import: connection refused, again in 1ms
	// import: the file is corrupt, for good
	// true
}

// printer prints two of the events, and leaves the others to NoopObserver.
type printer struct{ pool.NoopObserver }

func (printer) OnSlotBackoff(_ context.Context, e pool.SlotBackoffEvent) {
	fmt.Printf("%s: %v, again in %v\n", e.WorkID, e.Err, e.Duration)
}

func (printer) OnSlotDead(_ context.Context, e pool.SlotDeadEvent) {
	fmt.Printf("%s: %v, for good\n", e.WorkID, e.Err)
}
