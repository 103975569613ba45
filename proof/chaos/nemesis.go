package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aetomala/worklease/internal/pause"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/proof/chaos/history"
)

// nemesis is what makes life hard. Each worker has a lane of faults of its own, one after another, and the
// server has one; the lanes know nothing of each other.
type nemesis struct {
	ttl     time.Duration
	peace   time.Duration // between two faults of the server, at least
	fleet   *fleet
	proxies []*pgtest.Proxy // by worker; they lead to trunk
	trunk   *pgtest.Proxy   // in front of the server
	server  *pgtest.Private
	admin   *administrator

	mu     sync.Mutex
	faults []history.Fault
}

// fault is one kind of what may happen.
type fault struct {
	kind string
	what string
	// onWorker is done to one worker, onServer to the server or to all workers. One of them is set. They
	// return when the fault has ended, which it does soon after ctx has.
	onWorker func(ctx context.Context, n *nemesis, rng *rand.Rand, worker int)
	onServer func(ctx context.Context, n *nemesis, rng *rand.Rand)
}

// plan says how many faults of each kind there are to be.
type plan map[string]int

// decks shuffles the faults that are planned: those for each worker, and those for the server.
func (p plan) decks(rng *rand.Rand, workers int) (perWorker [][]fault, server []fault) {
	var all []fault
	for _, f := range faults {
		for range p[f.kind] {
			if f.onServer != nil {
				server = append(server, f)
			} else {
				all = append(all, f)
			}
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	rng.Shuffle(len(server), func(i, j int) { server[i], server[j] = server[j], server[i] })
	perWorker = make([][]fault, workers)
	for i, f := range all {
		perWorker[i%workers] = append(perWorker[i%workers], f)
	}
	return perWorker, server
}

// rage goes through the plan in about the time given, and returns when the last fault has ended. The
// server's lane is in the caller's goroutine, which may be a test's.
func (n *nemesis) rage(ctx context.Context, p plan, seed uint64, span time.Duration) {
	perWorker, server := p.decks(rand.New(rand.NewPCG(seed, 0)), len(n.fleet.members))
	var lanes sync.WaitGroup
	for worker, deck := range perWorker {
		lanes.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(worker)+2))
			n.lane(ctx, rng, deck, span, n.ttl/5, worker, func(f fault) { f.onWorker(ctx, n, rng, worker) })
		})
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	n.lane(ctx, rng, server, span, n.peace, -1, func(f fault) { f.onServer(ctx, n, rng) })
	lanes.Wait()
}

// lane spreads the faults of a deck over the time there is, with some peace after each.
func (n *nemesis) lane(ctx context.Context, rng *rand.Rand, deck []fault, span, peace time.Duration, worker int, do func(fault)) {
	begun := time.Now()
	for i, f := range deck {
		// Somewhere in the i-th part of the span, if it is not over.
		at := time.Duration((float64(i) + rng.Float64()) / float64(len(deck)) * float64(span))
		if pause.Sleep(ctx, max(peace, at-time.Since(begun))) != nil {
			return
		}
		start := history.Now()
		do(f)
		n.mu.Lock()
		n.faults = append(n.faults, history.Fault{Kind: f.kind, Worker: worker, Start: start, End: history.Now()})
		n.mu.Unlock()
	}
}

// between draws a duration, in TTLs.
func (n *nemesis) between(rng *rand.Rand, low, high float64) time.Duration {
	return time.Duration((low + rng.Float64()*(high-low)) * float64(n.ttl))
}

// wait lets a fault last. It is cut short when the run is.
func wait(ctx context.Context, d time.Duration) {
	_ = pause.Sleep(ctx, d) // the fault then ends at once, as it does anyway
}
