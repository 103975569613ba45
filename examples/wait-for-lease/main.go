// Wait-for-lease shows what to do about a lease that somebody else holds: ask who and until when, wait
// for a while, or wait until it is free.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
)

const workID = "report-2026"

// waiting makes Acquire ask again every 20 to 24 ms, in place of every 2 s. A store in a database
// prefers longer pauses.
var waiting = []worklease.AcquireOption{worklease.WithWaitForLease(), worklease.WithPollInterval(20 * time.Millisecond)}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	// The time of this store stands still, so that the lease never lapses: it is free when it is released.
	store := memory.New(memory.WithClock(stopped(time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC))))
	first, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		return err
	}
	second, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: "host-2"})
	if err != nil {
		return err
	}
	token, err := first.Acquire(ctx, workID)
	if err != nil {
		return err
	}
	fmt.Println("host-1: holds", workID)

	if err := ask(ctx, second); err != nil {
		return err
	}
	if err := waitForAWhile(ctx, second); err != nil {
		return err
	}

	turnedAway := make(chan struct{})
	patient, err := worklease.New(store, worklease.Config{
		TTL: 30 * time.Second, HolderID: "host-2",
		Observer: observer{turnedAway: sync.OnceFunc(func() { close(turnedAway) })},
	})
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- waitUntilFree(ctx, patient) }()
	select {
	case <-turnedAway: // from here on host-2 is known to wait
	case err := <-done:
		return fmt.Errorf("did not wait: %v", err)
	}
	fmt.Println("host-2: waits")
	fmt.Println("host-1: releases it as finished")
	if err := first.Release(ctx, token, worklease.ExitFinished); err != nil {
		return err
	}
	return <-done
}

// ask makes one attempt.
func ask(ctx context.Context, lease worklease.Lease) error {
	_, err := lease.Acquire(ctx, workID)
	held, ok := errors.AsType[*worklease.HeldError](err)
	if !ok {
		return fmt.Errorf("not told who holds the lease: %v", err)
	}
	// A holder that lives renews its lease, so this is the earliest time, on the store's clock.
	fmt.Printf("host-2: %s is held by %s until %s\n", held.WorkID, held.HolderID, held.ExpiresAt.UTC().Format(time.RFC3339))
	return nil
}

// waitForAWhile ends with its context: that is another error than contention.
func waitForAWhile(ctx context.Context, lease worklease.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := lease.Acquire(ctx, workID, waiting...)
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the wait did not end with its context: %v", err)
	}
	fmt.Printf("host-2: has waited for 100ms: deadline exceeded, matches ErrLeaseHeld: %t\n", errors.Is(err, worklease.ErrLeaseHeld))
	return nil
}

func waitUntilFree(ctx context.Context, lease worklease.Lease) error {
	token, err := lease.Acquire(ctx, workID, waiting...)
	if err != nil {
		return err
	}
	prior, err := lease.ReadCheckpoint(ctx, token)
	if err != nil {
		return err
	}
	fmt.Printf("host-2: holds %s, previous exit %s, by %s\n", workID, prior.PrevExit, prior.PrevHolderID)
	return lease.Release(ctx, token, worklease.ExitFinished)
}

// observer tells when an attempt has met a held lease.
type observer struct {
	worklease.NoopObserver
	turnedAway func()
}

func (o observer) OnAcquire(_ context.Context, e worklease.AcquireEvent) {
	if errors.Is(e.Err, worklease.ErrLeaseHeld) {
		o.turnedAway()
	}
}

// stopped is a clock that always shows the same time.
type stopped time.Time

func (s stopped) Now() time.Time { return time.Time(s) }
