package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/leader"
)

const tolerance = 3 * time.Second

func wantHealth(t *testing.T, h *leader.Health, want error) {
	t.Helper()
	if err := h.Check(tolerance); !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Errorf("health: %v, want %v", err, want)
	}
}

func TestHealthBeforeDuringAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h leader.Health
		var none *leader.Health
		wantHealth(t, &h, nil)
		wantHealth(t, none, nil)
		err := leader.Run(t.Context(), leaseOf(t, newStore(), "a"), workID, leader.Config{Health: &h}, func(context.Context) error {
			time.Sleep(10 * ttl)
			wantHealth(t, &h, nil)
			return nil
		})
		wantErr(t, err)
		time.Sleep(time.Hour)
		wantHealth(t, &h, nil)
	})
}

func TestHealthOfAFunctionPastItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnRenew = renewFails
		var h leader.Health
		err := leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, leader.Config{Health: &h, BackoffInterval: time.Hour}, func(ctx context.Context) error {
			awaitEnd(ctx)
			time.Sleep(tolerance - time.Nanosecond)
			wantHealth(t, &h, nil)
			time.Sleep(time.Nanosecond)
			wantHealth(t, &h, leader.ErrPastWindow)
			time.Sleep(time.Hour)
			wantHealth(t, &h, leader.ErrPastWindow)
			time.AfterFunc(30*time.Minute, func() { wantHealth(t, &h, nil) }) // back on its feet, in the pause
			return nil
		})
		wantErr(t, err, worklease.ErrLeaseWindowExhausted)
		wantHealth(t, &h, nil)
	})
}

func TestHealthOfAnOnElectedPastItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnRenew = renewFails
		var h leader.Health
		err := leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, leader.Config{
			Health: &h,
			OnElected: func(context.Context, worklease.Token) {
				time.Sleep(ttl + tolerance)
				wantHealth(t, &h, leader.ErrPastWindow)
			},
			OnLost: func(context.Context, worklease.Token) {
				time.Sleep(2 * tolerance) // it hangs, and the function does not run
				wantHealth(t, &h, nil)
				time.Sleep(time.Nanosecond)
				wantHealth(t, &h, leader.ErrStuck)
			},
		}, neverCalled(t))
		wantErr(t, err, worklease.ErrLeaseWindowExhausted)
	})
}

// A leader that is slow to stop holds its lease: nobody else leads, and a restart would mend nothing.
func TestHealthOfASlowShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h leader.Health
		ctx, cancel := context.WithCancel(t.Context())
		err := leader.Run(ctx, leaseOf(t, newStore(), "a"), workID, leader.Config{Health: &h}, func(ctx context.Context) error {
			cancel()
			awaitEnd(ctx)
			time.Sleep(10 * ttl)
			wantHealth(t, &h, nil)
			return ctx.Err()
		})
		wantErr(t, err, context.Canceled)
	})
}

func TestHealthOfStandbyAndOfAnOutage(t *testing.T) {
	for _, answer := range []error{backend.ErrLeaseHeld, errStore} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			acquireFails(answer)(s)
			var h leader.Health
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			watched := make(chan struct{})
			defer func() { <-watched }()
			go func() {
				defer close(watched)
				for ctx.Err() == nil {
					wantHealth(t, &h, nil)
					time.Sleep(time.Second / 3)
				}
			}()
			wantErr(t, leader.Run(ctx, leaseOf(t, s, "a"), workID, leader.Config{
				Health: &h, IdleInterval: time.Minute, BackoffInterval: time.Minute,
			}, neverCalled(t)), context.DeadlineExceeded)
		})
	}
}

// Whatever does not come back in its time is stuck: an attempt, a callback, a release.
func TestHealthOfAStuckLoop(t *testing.T) {
	watch := func(t *testing.T, h *leader.Health) func() {
		return func() {
			time.Sleep(tolerance)
			wantHealth(t, h, nil)
			time.Sleep(time.Nanosecond)
			wantHealth(t, h, leader.ErrStuck)
		}
	}
	t.Run("attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			var h leader.Health
			s.OnAcquire = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
				watch(t, &h)()
				return backend.LeaseRecord{}, errStore
			}
			wantErr(t, leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, leader.Config{Health: &h}, neverCalled(t)), errStore)
			wantHealth(t, &h, nil)
		})
	})
	t.Run("release", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			var h leader.Health
			s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error {
				watch(t, &h)()
				return nil
			}
			wantErr(t, leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, leader.Config{Health: &h}, returns(nil)))
			wantHealth(t, &h, nil)
		})
	})
	// The lease is held meanwhile: nobody leads.
	t.Run("OnElected", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var h leader.Health
			wantErr(t, leader.Elect(t.Context(), leaseOf(t, newStore(), "a"), workID, leader.Config{
				Health:    &h,
				OnElected: func(context.Context, worklease.Token) { watch(t, &h)() },
			}, func(context.Context) error {
				wantHealth(t, &h, nil)
				time.Sleep(10 * ttl)
				wantHealth(t, &h, nil)
				return nil
			}))
		})
	})
	t.Run("OnRelinquished", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var h leader.Health
			wantErr(t, leader.Elect(t.Context(), leaseOf(t, newStore(), "a"), workID, leader.Config{
				Health:         &h,
				OnRelinquished: func(context.Context, worklease.Token) { watch(t, &h)() },
			}, returns(nil)))
		})
	})
}

func TestNegativeToleranceIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h leader.Health
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(30*time.Second, func() {
			if err := h.Check(-time.Hour); err != nil {
				t.Errorf("health of a pause that is not over: %v", err)
			}
		})
		wantErr(t, leader.Elect(ctx, leaseOf(t, newStore(), "a"), workID, leader.Config{Health: &h, BackoffInterval: time.Hour}, returns(nil)))
	})
}

// How long somebody else leads says nothing of this process.
func TestHealthOfAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		acquireFails(backend.ErrLeaseHeld)(s)
		var h leader.Health
		time.AfterFunc(time.Hour, func() { wantHealth(t, &h, nil) })
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		wantErr(t, leader.Run(ctx, leaseOf(t, s, "a"), workID, leader.Config{
			Health: &h, AcquireOptions: []worklease.AcquireOption{worklease.WithWaitForLease()},
		}, neverCalled(t)), context.DeadlineExceeded)
	})
}

// foreign is a Lease of another make: its contexts have no lease window.
type foreign struct{ worklease.Lease }

func (f foreign) StartRenewal(ctx context.Context, _ worklease.Token, _ ...worklease.RenewalOption) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	return ctx, cancel
}

func TestHealthKnowsNoWindowThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h leader.Health
		wantErr(t, leader.Elect(t.Context(), foreign{leaseOf(t, newStore(), "a")}, workID, leader.Config{Health: &h}, func(context.Context) error {
			wantHealth(t, &h, nil)
			time.Sleep(ttl / 2)
			wantHealth(t, &h, nil)
			return nil
		}))
	})
}
