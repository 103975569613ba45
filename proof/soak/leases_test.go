package soak

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
)

// books are what an observer has been told of renewals.
type books struct {
	worklease.NoopObserver
	interval time.Duration // in which a renewal is due at the latest

	mu    sync.Mutex
	last  map[string]time.Time // beginning of the last success
	times map[string]int       // renewals
	counts
}

// counts are of all leases together.
type counts struct {
	made   int
	again  int           // renewals that took more than one attempt
	failed int           // attempts
	late   time.Duration // of the renewal that was the latest
}

func newBooks(interval time.Duration) *books {
	return &books{interval: interval, last: make(map[string]time.Time), times: make(map[string]int)}
}

func (b *books) OnAcquire(_ context.Context, e worklease.AcquireEvent) {
	if e.Err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last[e.WorkID] = time.Now().Add(-e.Duration)
}

func (b *books) OnRenew(_ context.Context, e worklease.RenewEvent) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.Err != nil {
		b.failed++
		return
	}
	workID := e.Token.WorkID()
	b.late = max(b.late, now.Sub(b.last[workID].Add(b.interval)))
	b.last[workID] = now.Add(-e.Duration)
	b.times[workID]++
	b.made++
	if e.Attempt > 1 {
		b.again++
	}
}

// all reports whether each of so many leases has been renewed n times.
func (b *books) all(leases, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, times := range b.times {
		if times < n {
			return false
		}
	}
	return len(b.times) == leases
}

func (b *books) sum() counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts
}

// holding is a lease that is renewed.
type holding struct {
	token worklease.Token
	ctx   context.Context
}

// holder holds many leases.
type holder struct {
	lease  worklease.Lease
	stored []holding
	books  *books
}

// acquire takes so many leases, and has them renewed until ctx ends.
func acquire(ctx context.Context, t *testing.T, store backend.Backend, p params) *holder {
	t.Helper()
	h := &holder{stored: make([]holding, p.leases), books: newBooks(p.interval)}
	lease, err := worklease.New(store, worklease.Config{TTL: p.ttl, HolderID: "soak", Observer: h.books})
	if err != nil {
		t.Fatal(err)
	}
	h.lease = lease
	h.each(t, p.connections, func(i int) error {
		token, err := lease.Acquire(ctx, fmt.Sprintf("work-%05d", i))
		if err != nil {
			return err
		}
		h.stored[i].token = token
		h.stored[i].ctx, _ = lease.StartRenewal(ctx, token, worklease.WithRenewalInterval(p.interval))
		return nil
	})
	return h
}

// release gives up what has not been lost.
func (h *holder) release(ctx context.Context, t *testing.T, p params) {
	t.Helper()
	h.each(t, p.connections, func(i int) error {
		if h.stored[i].ctx.Err() != nil {
			return nil
		}
		return h.lease.Release(ctx, h.stored[i].token, worklease.ExitFinished)
	})
}

// each calls do for every lease, some at a time.
func (h *holder) each(t *testing.T, atATime int, do func(i int) error) {
	t.Helper()
	var (
		next = make(chan int)
		mu   sync.Mutex
		errs []error
		all  sync.WaitGroup
	)
	for range atATime {
		all.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for i := range h.stored {
		next <- i
	}
	close(next)
	all.Wait()
	if len(errs) > 0 {
		t.Fatalf("%d calls failed, the first with %v", len(errs), errs[0])
	}
}

// lost returns how many leases have been lost, and a cause other than the end of the window, if there is one.
func (h *holder) lost() (n int, other error) {
	for _, l := range h.stored {
		if cause := context.Cause(l.ctx); cause != nil {
			n++
			if !errors.Is(cause, worklease.ErrLeaseWindowExhausted) {
				other = cause
			}
		}
	}
	return n, other
}
