package worklease_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
)

// Answers come late and out of order. None of them may make a holder believe in a lease that it does
// not have, nor lose one that it has.

func TestAnswerLostOnTheWayFromAShorterLeaseShortensTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
			_ = s.Backend.Renew(ctx, record, ttl)
			return errStore
		}
		long, short := newLease(t, s.Backend, "a", 10*time.Second), newLease(t, s, "a", time.Second)
		token := acquire(t, long, "w")
		renewCtx, stop := long.StartRenewal(t.Context(), token)
		defer stop()
		start := time.Now()
		mustMatch(t, short.Renew(t.Context(), token), errStore)
		mustEnd(t, renewCtx, start.Add(time.Second), worklease.ErrLeaseWindowExhausted)
	})
}

func TestReleaseInFlightKeepsTheWindowFromVouching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnRelease = func(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
			time.Sleep(5 * time.Second)
			defer time.Sleep(time.Second)
			return s.Backend.Release(ctx, record, mode)
		}
		a, b := newLease(t, s, "a", 10*time.Second), newLease(t, s, "b", 10*time.Second)
		token := acquire(t, a, "w")
		time.Sleep(11 * time.Second)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := a.Release(t.Context(), token, worklease.ExitFinished); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		mustMatch(t, a.Renew(t.Context(), token), worklease.ErrLeaseExpired)
		if err := a.Checkpoint(t.Context(), token, nil); err != nil {
			t.Fatal(err)
		}
		renewCtx, stop := a.StartRenewal(t.Context(), token)
		defer stop()
		time.Sleep(4500 * time.Millisecond)
		acquire(t, b, "w")
		if _, ok := worklease.LeaseWindow(renewCtx); ok {
			t.Error("a's window is open, and b holds the lease")
		}
		wg.Wait()
		if renewCtx.Err() == nil {
			t.Error("a's renewal goes on")
		}
	})
}

func TestRenewInFlightDoesNotReopenWhatWasReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, gate := newStore(), make(chan struct{})
		s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
			defer func() { <-gate }()
			return s.Backend.Renew(ctx, record, ttl)
		}
		lease := newLease(t, s, "a", 10*time.Second)
		token := acquire(t, lease, "w")
		var wg sync.WaitGroup
		wg.Go(func() { _ = lease.Renew(t.Context(), token) })
		synctest.Wait()
		// At the very instant at which the Renew began, as a coarse clock may have it.
		if err := lease.Release(t.Context(), token, worklease.ExitFinished); err != nil {
			t.Fatal(err)
		}
		close(gate)
		wg.Wait()
		late, stop := lease.StartRenewal(t.Context(), token)
		defer stop()
		mustEnd(t, late, time.Now(), worklease.ErrLeaseWindowExhausted)
	})
}

func TestStaleVerdictDoesNotEndALeaseThatWasRevived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
			err := s.Backend.Renew(ctx, record, ttl)
			if err != nil {
				time.Sleep(3 * time.Second)
			}
			return err
		}
		lease := newLease(t, s, "a", 10*time.Second)
		token := acquire(t, lease, "w")
		time.Sleep(11 * time.Second)
		var wg sync.WaitGroup
		wg.Go(func() { mustMatch(t, lease.Renew(t.Context(), token), worklease.ErrLeaseExpired) })
		time.Sleep(time.Second)
		if err := lease.Checkpoint(t.Context(), token, nil); err != nil {
			t.Fatal(err)
		}
		renewCtx, stop := lease.StartRenewal(t.Context(), token)
		wg.Wait()
		mustBeAlive(t, renewCtx)
		windowOf(t, renewCtx)
		stop()
	})
}

func TestSlowObserverOfAnAcquireDoesNotMakeADeadLeaseALiveOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		lease := newObserved(t, b, "a", time.Second, onAcquire{f: func() { time.Sleep(2 * time.Second) }})
		token, err := lease.Acquire(t.Context(), "w")
		mustMatch(t, err, worklease.ErrLeaseWindowExhausted)
		if token != (worklease.Token{}) {
			t.Errorf("got %v", token)
		}
	})
}

// onAcquire is an observer that does something of its own at each acquisition.
type onAcquire struct {
	worklease.NoopObserver
	f func()
}

func (o onAcquire) OnAcquire(context.Context, worklease.AcquireEvent) { o.f() }

// callerContext is a context of the caller's making, which may be locked, or call back.
type callerContext struct {
	context.Context
	onValue func()
}

func (c *callerContext) Value(key any) any {
	if c.onValue != nil {
		c.onValue()
	}
	return c.Context.Value(key)
}

func TestContextThatCallsBackDoesNotDeadlock(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	parent := &callerContext{Context: ctx}
	lease := newLease(t, memory.New(), "a", time.Hour)
	token := acquire(t, lease, "w")
	renewCtx, stop := lease.StartRenewal(parent, token)
	inside := false
	parent.onValue = func() {
		if !inside {
			inside = true
			worklease.LeaseWindow(renewCtx)
			stop()
			inside = false
		}
	}
	if err := lease.Release(ctx, token, worklease.ExitFinished); err != nil {
		t.Fatal(err)
	}
	if renewCtx.Err() == nil {
		t.Error("the renewal goes on")
	}
}
