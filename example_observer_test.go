package worklease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
)

// printer prints the two events that it cares for. NoopObserver has the other methods, also those that
// a later version may add.
type printer struct {
	worklease.NoopObserver
}

func (printer) OnAcquire(_ context.Context, e worklease.AcquireEvent) {
	switch {
	case e.Err == nil:
		fmt.Println("acquired", e.WorkID)
	case errors.Is(e.Err, worklease.ErrLeaseHeld):
		fmt.Println("busy", e.WorkID) // usual where several compete, and no fault
	default:
		fmt.Println("fault", e.Err)
	}
}

func (printer) OnFenced(_ context.Context, e worklease.FencedEvent) {
	fmt.Println("fenced", e.Token.WorkID(), e.Operation)
}

func ExampleLeaseObserver() {
	lease, err := worklease.New(memory.New(), worklease.Config{
		TTL: 30 * time.Second, HolderID: "host-1", Observer: printer{},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	token, err := lease.Acquire(ctx, "report-2026")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := lease.Acquire(ctx, "report-2026"); err == nil {
		log.Fatal("acquired twice")
	}
	if err := lease.Forget(ctx, token); err != nil {
		log.Fatal(err)
	}
	if err := lease.Checkpoint(ctx, token, []byte("too late")); err == nil {
		log.Fatal("saved without a lease")
	}
	// Output:
	// acquired report-2026
	// busy report-2026
	// fenced report-2026 Checkpoint
}
