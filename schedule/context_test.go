package schedule_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/schedule"
	"github.com/aetomala/worklease/schedule/scheduletest"
)

// What an extension gives is counted from now, for the function's context, the name and AtLeastFor alike.
func TestExtendCountsFromNow(t *testing.T) {
	for _, tc := range []struct{ atMost, atLeast time.Duration }{
		{30 * time.Second, 0},
		{30 * time.Second, 20 * time.Second},
		{2 * time.Second, time.Second}, // sooner than it would have ended
	} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New()
			var token worklease.Token
			task := schedule.Task{Name: name, AtMostFor: 10 * time.Second, NoKeepAlive: true}
			start := time.Now()
			r, err := nodeOf(t, store, "a").Run(t.Context(), task, func(ctx context.Context) error {
				token = schedule.MustHold(ctx)
				time.Sleep(5 * time.Second)
				if err := schedule.Extend(ctx, tc.atMost, tc.atLeast); err != nil {
					t.Error(err)
				}
				if deadline, ok := worklease.LeaseWindow(ctx); !ok || !deadline.Equal(time.Now().Add(tc.atMost)) {
					t.Errorf("window: %v, %t", deadline, ok)
				}
				if got := schedule.MustHold(ctx); got.FencingToken() != token.FencingToken() {
					t.Errorf("token = %v, was %v", got, token)
				}
				<-ctx.Done()
				return context.Cause(ctx)
			})
			want(t, r, err, schedule.OutcomeRan, worklease.ErrLeaseWindowExhausted)
			if took := time.Since(start); took != 5*time.Second+tc.atMost {
				t.Errorf("ended after %v", took)
			}
			if got := probe(t, store); got != schedule.OutcomeRan {
				t.Errorf("afterwards: %v", got)
			}
		})
	}
}

func TestExtendChangesAtLeastFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		_, err := nodeOf(t, store, "a").Run(t.Context(), schedule.Task{Name: name, AtMostFor: 10 * time.Second, AtLeastFor: time.Second}, func(ctx context.Context) error {
			time.Sleep(time.Second)
			return schedule.Extend(ctx, 10*time.Second, 8*time.Second)
		})
		if err != nil {
			t.Error(err)
		}
		time.Sleep(8*time.Second - 1)
		if got := probe(t, store); got != schedule.OutcomeTooSoon {
			t.Errorf("just before: %v", got)
		}
		time.Sleep(time.Nanosecond)
		if got := probe(t, store); got != schedule.OutcomeRan {
			t.Errorf("afterwards: %v", got)
		}
	})
}

// A lease that is kept alive goes on being so, with the new time.
func TestExtendedLeaseIsKeptAlive(t *testing.T) {
	for _, atMost := range []time.Duration{2 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			store := newFaulty()
			r, err := nodeOf(t, store, "a").Run(t.Context(), schedule.Task{Name: name, AtMostFor: 10 * time.Second}, func(ctx context.Context) error {
				if err := schedule.Extend(ctx, atMost, 0); err != nil {
					t.Error(err)
				}
				store.set(func(f *faultyStore) { f.renewed = 0 })
				time.Sleep(10 * time.Minute)
				var renewed int
				store.set(func(f *faultyStore) { renewed, f.renew = f.renewed, errStore })
				perTTL := float64(renewed) / (10 * time.Minute.Seconds() / atMost.Seconds())
				if perTTL < 1.9 || perTTL > 2.5 {
					t.Errorf("%.2f renewals in %v", perTTL, atMost)
				}
				start := time.Now()
				<-ctx.Done()
				if took := time.Since(start); took > atMost || took < atMost/2 {
					t.Errorf("without renewals the lease of %v lasted %v", atMost, took)
				}
				return nil
			})
			want(t, r, err, schedule.OutcomeRan, worklease.ErrLeaseWindowExhausted)
		})
	}
}

func TestExtendRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := schedule.Extend(t.Context(), time.Second, 0); !errors.Is(err, schedule.ErrNotHeld) {
			t.Errorf("of no run: %v", err)
		}
		store := newFaulty()
		task := schedule.Task{Name: name, AtMostFor: 10 * time.Second, NoKeepAlive: true}
		r, err := nodeOf(t, store, "a").Run(t.Context(), task, func(ctx context.Context) error {
			if err := schedule.Extend(ctx, time.Second, 2*time.Second); !errors.Is(err, schedule.ErrTaskInvalid) {
				t.Errorf("atLeast beyond atMost: %v", err)
			}
			store.set(func(f *faultyStore) { f.renew = errStore })
			if err := schedule.Extend(ctx, time.Minute, 0); !errors.Is(err, errStore) {
				t.Errorf("store away: %v", err)
			}
			store.set(func(f *faultyStore) { f.renew = nil })
			if _, ok := schedule.Held(ctx); !ok || ctx.Err() != nil {
				t.Error("an extension that failed cost the lease")
			}
			if err := schedule.Extend(ctx, time.Minute, 0); err != nil { // once more, in full
				t.Error(err)
			}
			if deadline, ok := worklease.LeaseWindow(ctx); !ok || !deadline.Equal(time.Now().Add(time.Minute)) {
				t.Errorf("window: %v, %t", time.Until(deadline), ok)
			}
			<-ctx.Done()
			if err := schedule.Extend(ctx, time.Minute, 0); !errors.Is(err, worklease.ErrLeaseExpired) {
				t.Errorf("expired: %v", err)
			}
			return nil
		})
		want(t, r, err, schedule.OutcomeRan, worklease.ErrLeaseWindowExhausted)
		if got := probe(t, store.Backend); got != schedule.OutcomeRan {
			t.Errorf("afterwards: %v", got)
		}
	})
}

// Whoever comes back after another has taken over cannot extend what is no longer theirs.
func TestExtendOfALeaseTakenOverIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		r, err := nodeOf(t, store, "a").Run(t.Context(), schedule.Task{Name: name, AtMostFor: 10 * time.Second}, func(ctx context.Context) error {
			store.set(func(f *faultyStore) { f.renew = worklease.ErrFenced })
			if err := schedule.Extend(ctx, time.Minute, 0); !errors.Is(err, worklease.ErrFenced) {
				t.Error(err)
			}
			if !errors.Is(context.Cause(ctx), worklease.ErrFenced) {
				t.Errorf("cause = %v", context.Cause(ctx))
			}
			return nil
		})
		want(t, r, err, schedule.OutcomeRan, worklease.ErrFenced)
	})
}

func TestNestedRuns(t *testing.T) {
	store := memory.New()
	s := nodeOf(t, store, "a")
	task := schedule.Task{Name: name, AtMostFor: time.Minute}
	other := schedule.Task{Name: "other", AtMostFor: time.Minute}
	var innermost bool
	r, err := s.Run(t.Context(), task, func(ctx context.Context) error {
		mine := schedule.MustHold(ctx)
		r, err := s.Run(ctx, other, func(ctx context.Context) error {
			if got := schedule.MustHold(ctx); got.WorkID() != "other" {
				t.Errorf("token = %v", got)
			}
			within := schedule.Task{Name: name, AtMostFor: time.Second, NoKeepAlive: true, Slot: at(1)} // which do not count
			r, err := s.Run(ctx, within, func(ctx context.Context) error {
				innermost = true
				if slot, ok := schedule.SlotOf(ctx); ok {
					t.Errorf("slot %v", slot)
				}
				return errWork
			})
			want(t, r, err, schedule.OutcomeRan, errWork)
			return nil
		})
		want(t, r, err, schedule.OutcomeRan)
		if got, ok := schedule.Held(ctx); !ok || got != mine {
			t.Errorf("afterwards the token is %v, %t", got, ok)
		}
		if lock, err := s.Lock(ctx, task); lock != nil || !errors.Is(err, worklease.ErrLeaseHeld) {
			t.Errorf("lock = %v, %v", lock, err)
		}
		return nil
	})
	want(t, r, err, schedule.OutcomeRan)
	if !innermost {
		t.Error("the same name within itself was not run")
	}
}

// A renewal without an answer may arrive after the extension, and give no more than it says: the window is
// not relied upon for longer than that, while the name is taken for all of the new time.
func TestExtendBesideARenewalWithoutAVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		_, err := nodeOf(t, store, "a").Run(t.Context(), schedule.Task{Name: name, AtMostFor: 10 * time.Second}, func(ctx context.Context) error {
			store.set(func(f *faultyStore) { f.renew = errStore })
			time.Sleep(5 * time.Second)
			store.set(func(f *faultyStore) { f.renew = nil })
			if err := schedule.Extend(ctx, time.Minute, 0); err != nil {
				t.Error(err)
			}
			if deadline, ok := worklease.LeaseWindow(ctx); !ok || !deadline.Equal(time.Now().Add(10*time.Second)) {
				t.Errorf("window: %v, %t", time.Until(deadline), ok)
			}
			for range 2 { // after renewals, too
				r, err := nodeOf(t, store, "b").Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute}, never(t))
				want(t, r, err, schedule.OutcomeHeld)
				if left := time.Until(r.Until); left < 50*time.Second {
					t.Errorf("taken for %v", left)
				}
				time.Sleep(30 * time.Second)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestHeldEndsWithTheRun(t *testing.T) {
	var kept context.Context
	_, err := nodeOf(t, memory.New(), "a").Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute}, func(ctx context.Context) error {
		kept = ctx
		return schedule.Extend(ctx, time.Minute, 0)
	})
	if _, ok := schedule.Held(kept); ok || err != nil {
		t.Errorf("held after the run: %t, %v", ok, err)
	}
	for _, ctx := range []context.Context{kept, t.Context()} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("MustHold did not panic")
				}
			}()
			schedule.MustHold(ctx)
		}()
	}
}

func TestScheduletestContext(t *testing.T) {
	var ctx context.Context
	t.Run("within", func(t *testing.T) {
		ctx = scheduletest.Context(t)
		if token := schedule.MustHold(ctx); token.FencingToken() == 0 {
			t.Errorf("token = %v", token)
		}
		if err := schedule.Extend(ctx, time.Minute, 0); err != nil {
			t.Error(err)
		}
	})
	if _, ok := schedule.Held(ctx); ok || ctx.Err() == nil {
		t.Error("it outlived its test")
	}
}
