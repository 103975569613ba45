package worklease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aetomala/worklease/backend"
)

const (
	// maxBatch bounds what one call renews: a call that hangs or fails takes no more leases with it.
	maxBatch = 500
	// gatherShare is the share of the renewal interval for which a renewal that is due waits for others,
	// and of the time left when it is made again.
	gatherShare = 0.05
)

// batch gathers the renewals of one Lease that fall due close to each other, and makes them in one call.
// Each keeps its own attempt, which is counted, given up and made again as if it had been made alone.
type batch struct {
	lease *lease
	store backend.BatchRenewer
	off   atomic.Bool // the store, a wrapper, turned out to have no such thing

	mu    sync.Mutex
	due   []batched
	first *gather // ends the gathering of due
}

// gather is the wait for others of those that are due together.
type gather struct {
	timer *time.Timer
	until time.Time
}

type batched struct {
	renewal *renewal
	attempt *attempt
}

// works reports whether renewals are to be made together; a nil batch does not work.
func (b *batch) works() bool { return b != nil && !b.off.Load() }

// gathering returns how long a renewal with so much time may wait for others.
func gathering(d time.Duration) time.Duration { return time.Duration(gatherShare * float64(d)) }

// add takes over an attempt that is due. wait is how long it can wait for others.
func (b *batch) add(r *renewal, a *attempt, wait time.Duration) {
	if full := b.gather(batched{r, a}, wait); full != nil {
		b.send(full)
	}
}

// gather returns what is to be sent at once.
func (b *batch) gather(one batched, wait time.Duration) (full []batched) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due = append(b.due, one)
	if len(b.due) == maxBatch {
		return b.take()
	}
	until := time.Now().Add(wait)
	switch {
	case b.first == nil:
		g := &gather{until: until}
		g.timer = time.AfterFunc(wait, func() { b.flush(g) })
		b.first = g
	case until.Before(b.first.until):
		b.first.until = until
		b.first.timer.Reset(wait)
	}
	return nil
}

// flush sends what g has waited for, unless that is under way already.
func (b *batch) flush(g *gather) {
	b.mu.Lock()
	var gathered []batched
	if b.first == g {
		gathered = b.take()
	}
	b.mu.Unlock()
	b.send(gathered)
}

// take is called with mu locked.
func (b *batch) take() []batched {
	gathered := b.due
	if b.first != nil {
		b.first.timer.Stop()
	}
	b.due, b.first = nil, nil
	return gathered
}

// send makes the attempts that are still wanted, one for each lease together.
func (b *batch) send(gathered []batched) {
	wanted := gathered[:0]
	seen := make(map[*hold]bool, len(gathered))
	for _, one := range gathered {
		switch {
		case one.attempt.ctx.Err() != nil:
			one.renewal.answer(one.attempt, one.attempt.ctx.Err(), 0)
		case seen[one.renewal.hold]:
			go one.renewal.try(one.attempt)
		default:
			seen[one.renewal.hold] = true
			wanted = append(wanted, one)
		}
	}
	switch len(wanted) {
	case 0:
	case 1: // what a store does for one alone has no other to wait for
		wanted[0].renewal.try(wanted[0].attempt)
	default:
		b.renew(wanted)
	}
}

// renew makes the attempts in one call. What the verdicts say of the leases is drawn for all of them
// before any observer hears of it.
func (b *batch) renew(all []batched) {
	records := make([]backend.LeaseRecord, len(all))
	begun := make([]beginning, len(all))
	for i, one := range all {
		records[i] = one.renewal.token.record
		begun[i] = b.lease.begin(renew, one.renewal.token)
	}
	verdicts, took, err := b.call(all, records)
	if errors.Is(err, errors.ErrUnsupported) {
		b.off.Store(true)
	}
	type told struct {
		err    error
		fenced bool
		alone  bool
	}
	tell := make([]told, len(all))
	place := rand.Float64() // the same for all: what is together stays together
	for i, one := range all {
		verdict := err
		if err == nil {
			verdict = verdicts[i]
		}
		if errors.Is(verdict, backend.ErrBusy) || b.off.Load() {
			tell[i].alone = true
			go one.renewal.try(one.attempt)
			continue
		}
		tell[i].err, tell[i].fenced = b.lease.conclude(one.attempt.ctx, renew, one.renewal.token, begun[i], verdict)
		one.renewal.answer(one.attempt, tell[i].err, place)
	}
	if b.lease.observer == nil {
		return
	}
	for i, one := range all {
		if !tell[i].alone {
			one.renewal.tell(one.attempt, took, tell[i].err, tell[i].fenced)
		}
	}
}

// call asks the store. It is cancelled once nobody waits for it any more.
func (b *batch) call(all []batched, records []backend.LeaseRecord) (verdicts []error, took time.Duration, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var waiting atomic.Int64
	waiting.Store(int64(len(all)))
	for _, one := range all {
		defer context.AfterFunc(one.attempt.ctx, func() {
			if waiting.Add(-1) == 0 {
				cancel()
			}
		})()
	}
	defer survive(&err, func(err error) {
		for _, one := range all {
			one.renewal.hold.lose(err)
		}
	})()
	start := b.lease.now()
	verdicts, err = b.store.RenewBatch(ctx, records, b.lease.ttl)
	took = b.lease.now().at.Sub(start.at)
	if err == nil && len(verdicts) != len(records) {
		err = fmt.Errorf("the store says of %d leases how %d were renewed", len(records), len(verdicts))
	}
	return verdicts, took, err
}

// tell lets the observer know of an attempt that was made with others.
func (r *renewal) tell(a *attempt, took time.Duration, err error, fenced bool) {
	var panicked error
	defer survive(&panicked, r.hold.lose)()
	r.lease.observer.OnRenew(a.ctx, RenewEvent{Token: r.token, Duration: took, Attempt: a.number, Err: err})
	if fenced {
		r.lease.observer.OnFenced(a.ctx, FencedEvent{Token: r.token, Operation: renew.fenced})
	}
	panicked = nil
}
