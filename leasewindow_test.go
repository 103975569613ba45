package worklease_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/internal/faulty"
)

func TestSuccessMovesTheWindowAndFailureDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		s := newStore()
		lease := newLease(t, s, "a", ttl)
		token := acquire(t, lease, "w")
		renewCtx, stop := lease.StartRenewal(t.Context(), token)
		stop() // from here on only explicit calls can move the window
		ctx := t.Context()

		time.Sleep(3 * time.Second)
		if got := windowOf(t, renewCtx); got != ttl-3*time.Second {
			t.Fatalf("the window of the Acquire closes in %v", got)
		}
		if err := lease.Renew(ctx, token); err != nil {
			t.Fatal(err)
		}
		if got := windowOf(t, renewCtx); got != ttl {
			t.Errorf("after Renew the window closes in %v, want %v", got, ttl)
		}
		time.Sleep(3 * time.Second)
		s.OnCheckpoint = func(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
			time.Sleep(time.Second) // on the way there and back
			return s.Backend.Checkpoint(ctx, record, state, ttl)
		}
		if err := lease.Checkpoint(ctx, token, []byte("good")); err != nil {
			t.Fatal(err)
		}
		if got := windowOf(t, renewCtx); got != ttl-time.Second {
			t.Errorf("after a Checkpoint that took a second the window closes in %v, want %v", got, ttl-time.Second)
		}

		s.OnCheckpoint = func(context.Context, backend.LeaseRecord, []byte, time.Duration) error { return errStore }
		s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error { return errStore }
		time.Sleep(2 * time.Second)
		mustMatch(t, lease.Checkpoint(ctx, token, []byte("lost")), errStore)
		mustMatch(t, lease.Renew(ctx, token), errStore)
		if got := windowOf(t, renewCtx); got != ttl-3*time.Second {
			t.Errorf("after two failures the window closes in %v, want %v", got, ttl-3*time.Second)
		}
		if found, err := lease.ReadCheckpoint(ctx, token); err != nil || string(found.State) != "good" {
			t.Errorf("read %q, %v after a failed Checkpoint", found.State, err)
		}
		if got := windowOf(t, renewCtx); got != ttl-3*time.Second {
			t.Errorf("ReadCheckpoint moved the window: it closes in %v", got)
		}
		mustEnd(t, renewCtx, time.Now().Add(ttl-3*time.Second), worklease.ErrLeaseWindowExhausted)
	})
}

func TestWindowIsNoLongerThanTheStoresExpiryWhateverTheStoresClock(t *testing.T) {
	for _, offset := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := &offsetClock{}
				clock.Store(int64(offset))
				s := &faulty.Store{Backend: memory.New(memory.WithClock(clock))}
				s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
					time.Sleep(300 * time.Millisecond)
					defer time.Sleep(300 * time.Millisecond)
					return s.Backend.Renew(ctx, record, ttl)
				}
				lease := newLease(t, s, "a", 10*time.Second)
				token := acquire(t, lease, "w")
				renewCtx, _ := lease.StartRenewal(t.Context(), token)
				rival := newLease(t, s, "b", time.Second)
				for range 200 {
					time.Sleep(177 * time.Millisecond)
					mine := windowOf(t, renewCtx)
					_, err := rival.Acquire(t.Context(), "w")
					held, ok := errors.AsType[*worklease.HeldError](err)
					if !ok {
						t.Fatalf("the rival gets %v", err)
					}
					if stored := held.ExpiresAt.Sub(clock.Now()); mine > stored {
						t.Fatalf("the window closes in %v, and the lease is over in %v", mine, stored)
					}
				}
				clock.Add(int64(time.Hour)) // the store's clock is set: the lease is over there
				<-renewCtx.Done()
				mustMatch(t, context.Cause(renewCtx), worklease.ErrLeaseWindowExhausted, worklease.ErrLeaseExpired)
			})
		})
	}
}

// offsetClock is off by so many nanoseconds.
type offsetClock struct{ atomic.Int64 }

func (c *offsetClock) Now() time.Time { return time.Now().Add(time.Duration(c.Load())) }

func TestLeaseWindowIsKnownToDerivedContextsOnly(t *testing.T) {
	lease := newLease(t, memory.New(), "a", time.Minute)
	type key struct{}
	parent := context.WithValue(t.Context(), key{}, "kept")
	renewCtx, stop := lease.StartRenewal(parent, acquire(t, lease, "w"))
	defer stop()

	derived, cancel := context.WithCancel(renewCtx)
	want, _ := worklease.LeaseWindow(renewCtx)
	if got, ok := worklease.LeaseWindow(derived); !ok || !got.Equal(want) {
		t.Errorf("window of a derived context: %v, %v", got, ok)
	}
	cancel()
	if _, ok := worklease.LeaseWindow(derived); !ok {
		t.Error("a derived context that was cancelled has no window, although the lease is held")
	}
	if renewCtx.Value(key{}) != "kept" {
		t.Error("renewCtx does not carry its parent's values")
	}
	longer := newLease(t, memory.New(), "a", time.Hour)
	inner, stopInner := longer.StartRenewal(renewCtx, acquire(t, longer, "inner"))
	defer stopInner()
	if got, _ := worklease.LeaseWindow(inner); !got.After(want.Add(time.Second)) {
		t.Error("the window under two leases is not that of the inner one")
	}
	for name, ctx := range map[string]context.Context{"background": context.Background(), "parent": parent, "nil": nil} {
		if deadline, ok := worklease.LeaseWindow(ctx); ok || !deadline.IsZero() {
			t.Errorf("%s has a window", name)
		}
	}
}

func TestReleaseAndForgetEndTheRenewal(t *testing.T) {
	for name, leave := range map[string]func(ctx context.Context, l worklease.Lease, token worklease.Token) error{
		"release": func(ctx context.Context, l worklease.Lease, token worklease.Token) error {
			return l.Release(ctx, token, worklease.ExitFinished)
		},
		"forget": func(ctx context.Context, l worklease.Lease, token worklease.Token) error {
			return l.Forget(ctx, token)
		},
	} {
		t.Run(name, func(t *testing.T) {
			lease := newLease(t, memory.New(), "a", time.Hour)
			token := acquire(t, lease, "w")
			running, _ := lease.StartRenewal(t.Context(), token)
			stopped, stop := lease.StartRenewal(t.Context(), token)
			stop()
			// Under the context that the call is about to end, as in a deferred Release.
			if err := leave(running, lease, token); err != nil {
				t.Fatal(err)
			}
			for _, ctx := range []context.Context{running, stopped} {
				mustMatch(t, context.Cause(ctx), worklease.ErrLeaseWindowExhausted)
				if _, ok := worklease.LeaseWindow(ctx); ok {
					t.Error("there is a window after the lease was given up")
				}
			}
			late, _ := lease.StartRenewal(t.Context(), token)
			mustMatch(t, context.Cause(late), worklease.ErrLeaseWindowExhausted)
		})
	}
}

func TestNobodyReliesOnTheLeaseOnceReleaseIsUnderWay(t *testing.T) {
	s := newStore()
	lease := newLease(t, s, "a", time.Hour)
	token := acquire(t, lease, "w")
	renewCtx, stop := lease.StartRenewal(t.Context(), token)
	defer stop()
	s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error {
		if _, ok := worklease.LeaseWindow(renewCtx); ok {
			t.Error("the window vouches for a lease that is being released")
		}
		mustBeAlive(t, renewCtx)
		return errStore // and the store may have released it all the same
	}
	mustMatch(t, lease.Release(t.Context(), token, worklease.ExitFinished), errStore)
	mustBeAlive(t, renewCtx)
	if _, ok := worklease.LeaseWindow(renewCtx); ok {
		t.Error("the window vouches for a lease whose release is in doubt")
	}
}

func TestLeaseWhoseReleaseWasRefusedCanBeRevived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := newLease(t, memory.New(), "a", 10*time.Second)
		token := acquire(t, lease, "w")
		time.Sleep(time.Minute)
		mustMatch(t, lease.Release(t.Context(), token, worklease.ExitFinished), worklease.ErrLeaseExpired)
		time.Sleep(time.Second)
		if err := lease.Checkpoint(t.Context(), token, nil); err != nil {
			t.Fatal(err)
		}
		renewCtx, stop := lease.StartRenewal(t.Context(), token)
		defer stop()
		windowOf(t, renewCtx)
	})
}

// A release whose answer is missing may be carried out after later calls have succeeded.
func TestNoSuccessAfterAReleaseInDoubtIsReasonToRelyOnTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		lease, next := newLease(t, s, "a", 10*time.Second), newLease(t, s.Backend, "b", 10*time.Second)
		token := acquire(t, lease, "w")
		renewCtx, stop := lease.StartRenewal(t.Context(), token)
		defer stop()
		var late func() error
		s.OnRelease = func(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
			late = func() error { return s.Backend.Release(context.WithoutCancel(ctx), record, mode) }
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		mustMatch(t, lease.Release(ctx, token, worklease.ExitFinished), context.DeadlineExceeded)
		if err := lease.Renew(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		if err := late(); err != nil {
			t.Fatal(err)
		}
		acquire(t, next, "w")
		if _, ok := worklease.LeaseWindow(renewCtx); ok {
			t.Error("the window vouches for a lease that another tenure has")
		}
	})
}

func TestTokenUsedThroughSeveralLeasesHasTheShortestOfTheirTTLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		long, short := newLease(t, b, "a", time.Minute), newLease(t, b, "a", time.Second)
		token := acquire(t, long, "w")
		renewCtx, stop := long.StartRenewal(t.Context(), token)
		defer stop()
		time.Sleep(5 * time.Second)
		start := time.Now()
		if err := short.Renew(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		if got := windowOf(t, renewCtx); got != time.Second {
			t.Errorf("the window closes in %v", got)
		}
		mustEnd(t, renewCtx, start.Add(time.Second), worklease.ErrLeaseWindowExhausted)
	})
}

func TestLapsedLeaseThatIsRevivedHasAWindowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := newLease(t, memory.New(), "a", 10*time.Second)
		token := acquire(t, lease, "w")
		time.Sleep(time.Minute)
		gone, _ := lease.StartRenewal(t.Context(), token)
		mustEnd(t, gone, time.Now(), worklease.ErrLeaseWindowExhausted)
		mustMatch(t, lease.Renew(t.Context(), token), worklease.ErrLeaseExpired)

		if err := lease.Checkpoint(t.Context(), token, []byte("back")); err != nil {
			t.Fatal(err)
		}
		renewCtx, stop := lease.StartRenewal(t.Context(), token)
		time.Sleep(time.Minute)
		mustBeAlive(t, renewCtx)
		stop()
	})
}

// heap returns the live bytes after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestNothingLeaksOverManyTenuresUnderOneContext(t *testing.T) {
	const (
		ttl     = time.Second
		workIDs = 200
		pace    = 2 * ttl / workIDs // a work ID comes up again after two TTLs
	)
	for name, tc := range map[string]struct {
		release bool
		tenures int
	}{
		"released":             {true, 100_000},
		"left to their window": {false, 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				lease := newLease(t, memory.New(), "a", ttl)
				run := func(n int) {
					for i := range n {
						token := acquire(t, lease, fmt.Sprint(i%workIDs))
						_, stop := lease.StartRenewal(ctx, token)
						stop()
						if tc.release {
							if err := lease.Release(ctx, token, worklease.ExitFinished); err != nil {
								t.Fatal(err)
							}
						} else {
							time.Sleep(pace)
						}
					}
					time.Sleep(ttl)
					synctest.Wait()
				}
				run(10 * workIDs)
				bytes, goroutines := heap(), runtime.NumGoroutine()
				run(tc.tenures)
				if grown := heap() - bytes; grown > int64(tc.tenures) {
					t.Errorf("%d bytes more after %d tenures", grown, tc.tenures)
				}
				if n := runtime.NumGoroutine(); n > goroutines {
					t.Errorf("%d goroutines more after %d tenures", n-goroutines, tc.tenures)
				}
			})
		})
	}
}

// txStore is a store for which some contexts carry a transaction.
type txStore struct{ backend.Backend }

type txKey struct{}

func (txStore) InTransaction(ctx context.Context) bool { return ctx.Value(txKey{}) != nil }

func TestCallInATransactionDoesNotMoveTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := newLease(t, txStore{memory.New()}, "a", 10*time.Second)
		token := acquire(t, lease, "w")
		renewCtx, stop := lease.StartRenewal(t.Context(), token)
		stop()
		time.Sleep(time.Second)
		inTx := context.WithValue(t.Context(), txKey{}, true)
		for _, err := range []error{lease.Checkpoint(inTx, token, nil), lease.Renew(inTx, token)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := windowOf(t, renewCtx); got != 9*time.Second {
			t.Errorf("before the commit the window closes in %v", got)
		}
		if err := lease.Renew(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		if got := windowOf(t, renewCtx); got != 10*time.Second {
			t.Errorf("the window closes in %v", got)
		}
		inside, _ := lease.StartRenewal(inTx, token)
		if inside.Err() == nil {
			t.Error("background renewal begins in a transaction")
		}
		mustNotMatch(t, context.Cause(inside), worklease.ErrFenced, worklease.ErrLeaseWindowExhausted)
	})
}
