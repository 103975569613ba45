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

// A tenure by hand. Package worker does these steps in the same order.
func Example() {
	lease, err := worklease.New(memory.New(), worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	tenure := func(ctx context.Context, mode worklease.ExitMode) error {
		token, err := lease.Acquire(ctx, "report-2026")
		if err != nil {
			return err
		}
		prior, err := lease.ReadCheckpoint(ctx, token)
		if err != nil {
			return err
		}
		fmt.Printf("the holder before left %s after %q\n", prior.PrevExit, prior.State)

		renewCtx, stopRenewal := lease.StartRenewal(ctx, token)
		defer stopRenewal()
		for _, page := range []string{"page 1", "page 2"} {
			if renewCtx.Err() != nil {
				return context.Cause(renewCtx) // the lease is lost, or ctx has ended
			}
			if err := lease.Checkpoint(renewCtx, token, []byte(page)); err != nil {
				return err
			}
		}
		stopRenewal()
		return lease.Release(ctx, token, mode)
	}
	for _, mode := range []worklease.ExitMode{worklease.ExitAbandoned, worklease.ExitFinished} {
		if err := tenure(context.Background(), mode); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// the holder before left none after ""
	// the holder before left abandoned after "page 2"
}

func ExampleWithWaitForLease() {
	ctx := context.Background()
	store := memory.New()
	first, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	second, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: "host-2"})
	if err != nil {
		log.Fatal(err)
	}
	token, err := first.Acquire(ctx, "report-2026")
	if err != nil {
		log.Fatal(err)
	}
	wait := []worklease.AcquireOption{worklease.WithWaitForLease(), worklease.WithPollInterval(5 * time.Millisecond)}

	waitCtx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = second.Acquire(waitCtx, "report-2026", wait...)
	fmt.Println("deadline exceeded:", errors.Is(err, context.DeadlineExceeded), "held:", errors.Is(err, worklease.ErrLeaseHeld))

	if err := first.Release(ctx, token, worklease.ExitFinished); err != nil {
		log.Fatal(err)
	}
	token, err = second.Acquire(ctx, "report-2026", wait...)
	fmt.Println(token.HolderID(), err)
	// Output:
	// deadline exceeded: true held: false
	// host-2 <nil>
}

// A store that knows who holds the lease says so, and until when.
func ExampleHeldError() {
	ctx := context.Background()
	store := memory.New()
	first, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	second, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: "host-2"})
	if err != nil {
		log.Fatal(err)
	}
	token, err := first.Acquire(ctx, "report-2026")
	if err != nil {
		log.Fatal(err)
	}
	_, err = second.Acquire(ctx, "report-2026")
	var held *worklease.HeldError
	if errors.As(err, &held) {
		fmt.Printf("%s is with %s\n", held.WorkID, held.HolderID)
		fmt.Println("until what its token says:", held.ExpiresAt.Equal(token.ExpiresAt()))
	}
	fmt.Println("matches ErrLeaseHeld:", errors.Is(err, worklease.ErrLeaseHeld))
	// Output:
	// report-2026 is with host-1
	// until what its token says: true
	// matches ErrLeaseHeld: true
}

// The window tells whether there is time enough for a step that must not be cut off.
func ExampleLeaseWindow() {
	lease, err := worklease.New(memory.New(), worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	token, err := lease.Acquire(ctx, "report-2026")
	if err != nil {
		log.Fatal(err)
	}
	renewCtx, stopRenewal := lease.StartRenewal(ctx, token)
	defer stopRenewal()

	deadline, ok := worklease.LeaseWindow(renewCtx)
	fmt.Println("time for a step of 10s:", ok && time.Until(deadline) > 10*time.Second)
	fmt.Println("time for one of 60s:", ok && time.Until(deadline) > 60*time.Second)

	if err := lease.Release(ctx, token, worklease.ExitFinished); err != nil {
		log.Fatal(err)
	}
	_, ok = worklease.LeaseWindow(renewCtx)
	fmt.Println("sure of the lease after the release:", ok)
	// Output:
	// time for a step of 10s: true
	// time for one of 60s: false
	// sure of the lease after the release: false
}
