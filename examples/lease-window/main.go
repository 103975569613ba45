// Lease-window shows a holder that loses sight of the store. Nobody tells it that its lease is over,
// but it knows from when on it can no longer be sure: it begins no side effect that might outlast its
// lease window, and its context ends with the window. A successor carries on from the last checkpoint.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/worker"
)

const (
	ttl   = 3 * time.Second
	steps = 4
	// limit is how long the side effect of a step takes at most: the timeout of a call, say.
	limit = ttl / 2
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	store := memory.New()
	link := &link{Backend: store}

	err := work(ctx, "host-1", link, func(step int) {
		if step == 3 {
			link.cut()
			time.Sleep(limit) // the network of this host fails, and the side effect barely makes it
		}
	})
	if !errors.Is(err, worklease.ErrLeaseWindowExhausted) {
		return fmt.Errorf("the first holder did not lose its lease: %v", err)
	}
	// The text of err also says which attempt failed last, and why.
	fmt.Printf("host-1: stops: %v; renewals failed meanwhile: %t\n", worklease.ErrLeaseWindowExhausted, link.failed.Load() > 0)

	// The window closes a little before the lease does: until then this has to wait. What the first
	// holder did without saving it is done again, as is always so between two checkpoints.
	return work(ctx, "host-2", store, func(int) {})
}

// work is one run on a host that reaches the store by way of b. send is the side effect of a step.
func work(ctx context.Context, host string, b backend.Backend, send func(step int)) error {
	lease, err := worklease.New(b, worklease.Config{TTL: ttl, HolderID: host})
	if err != nil {
		return err
	}
	do := func(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
		done := 0
		if prior.State != nil {
			done = int(prior.State[0])
		}
		fmt.Printf("%s: previous exit %s, after step %d\n", host, prior.PrevExit, done)
		for step := done + 1; step <= steps; step++ {
			if err := roomFor(ctx, step, host); err != nil {
				return nil, err
			}
			send(step)
			err := lease.Checkpoint(ctx, token, []byte{byte(step)})
			switch {
			case err == nil:
				fmt.Printf("%s: step %d of %d: done and saved\n", host, step, steps)
			case errors.Is(err, worklease.ErrFenced), errors.Is(err, worklease.ErrLeaseExpired), ctx.Err() != nil:
				return nil, err
			default:
				// A fault of the store alone is no reason to stop, as long as the window is open.
				fmt.Printf("%s: step %d of %d: done and not saved, the store cannot be reached\n", host, step, steps)
			}
		}
		return []byte{steps}, worklease.ErrRetire
	}
	runner, err := worker.NewRunner(worker.RunnerConfig{
		Lease: lease, WorkFn: do,
		AcquireOptions: []worklease.AcquireOption{worklease.WithWaitForLease(), worklease.WithPollInterval(20 * time.Millisecond)},
		RenewalOptions: []worklease.RenewalOption{worklease.WithRenewalInterval(100 * time.Millisecond)},
	})
	if err != nil {
		return err
	}
	return runner.Run(ctx, "newsletter")
}

// roomFor waits until the lease is sure for as long as a step takes. Whoever began with less might still
// be at it when the next holder is. It returns an error when there will be no room any more.
func roomFor(ctx context.Context, step int, host string) error {
	for told := false; ; told = true {
		if deadline, ok := worklease.LeaseWindow(ctx); ok && time.Until(deadline) >= limit {
			return nil
		}
		if !told {
			fmt.Printf("%s: step %d of %d: not begun, the lease is not sure for %v\n", host, step, steps, limit)
		}
		select {
		case <-ctx.Done(): // no later than the window
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond): // a renewal may have succeeded, and moved the window
		}
	}
}

var errUnreachable = errors.New("no route to host")

// link is a way to the store that can be cut. The store itself is well, and so are other ways to it.
type link struct {
	backend.Backend
	down   atomic.Bool
	failed atomic.Int64 // renewals
}

func (l *link) cut() { l.down.Store(true) }

func (l *link) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	if l.down.Load() {
		l.failed.Add(1)
		return errUnreachable
	}
	return l.Backend.Renew(ctx, record, ttl)
}

func (l *link) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	if l.down.Load() {
		return errUnreachable
	}
	return l.Backend.Checkpoint(ctx, record, state, ttl)
}
