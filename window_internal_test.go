package worklease

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease/backend/memory"
)

func TestWindowIsMeasuredByTheClockThatRanFurther(t *testing.T) {
	base := time.Now()
	at := func(monotonic, wall time.Duration) instant {
		return instant{at: base.Add(monotonic), wall: base.Round(0).Add(wall)}
	}
	for name, tc := range map[string]struct {
		ttl  time.Duration
		now  instant
		want time.Duration
	}{
		"at once":                  {time.Minute, at(0, 0), time.Minute},
		"both clocks":              {time.Minute, at(20*time.Second, 20*time.Second), 40 * time.Second},
		"wall ahead":               {time.Minute, at(time.Second, 50*time.Second), 10 * time.Second},
		"wall far ahead":           {time.Minute, at(time.Second, time.Hour), time.Minute - time.Hour},
		"wall set back":            {time.Minute, at(20*time.Second, -time.Hour), 40 * time.Second},
		"at the deadline":          {time.Minute, at(time.Minute, time.Minute), 0},
		"before it was opened":     {time.Minute, at(-time.Second, -time.Second), time.Minute},
		"the longest TTL there is": {math.MaxInt64, at(time.Hour, time.Hour), math.MaxInt64 - time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (window{opened: at(0, 0), ttl: tc.ttl}).remaining(tc.now); got != tc.want {
				t.Errorf("remaining %v, want %v", got, tc.want)
			}
		})
	}
	if got := (window{}).remaining(localNow()); got > 0 {
		t.Errorf("the zero window is open for %v", got)
	}
}

// suspend makes the wall clock of l run ahead of its monotonic clock by what it returns.
func suspend(l Lease) *atomic.Int64 {
	asleep := new(atomic.Int64)
	l.(*lease).now = func() instant {
		now := localNow()
		now.wall = now.wall.Add(time.Duration(asleep.Load()))
		return now
	}
	return asleep
}

func TestSuspendedMachineFindsItsWindowClosedAtTheFirstLook(t *testing.T) {
	renewed := func(t *testing.T) (Lease, Token, context.Context, *atomic.Int64) {
		l, err := New(memory.New(), Config{TTL: time.Minute, HolderID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		asleep := suspend(l)
		token, err := l.Acquire(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		renewCtx, _ := l.StartRenewal(t.Context(), token)
		time.Sleep(10 * time.Second)
		if _, ok := LeaseWindow(renewCtx); !ok {
			t.Fatal("no window before the suspend")
		}
		return l, token, renewCtx, asleep
	}
	closed := func(t *testing.T, renewCtx context.Context) {
		t.Helper()
		if cause := context.Cause(renewCtx); !errors.Is(cause, ErrLeaseWindowExhausted) {
			t.Errorf("cause %v, want the window exhausted", cause)
		}
	}

	t.Run("by LeaseWindow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, _, renewCtx, asleep := renewed(t)
			asleep.Store(int64(time.Hour))
			if _, ok := LeaseWindow(renewCtx); ok {
				t.Error("there is a window after an hour asleep")
			}
			closed(t, renewCtx)
		})
	})
	t.Run("by the next renewal, which is not made", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, token, renewCtx, asleep := renewed(t)
			asleep.Store(int64(time.Hour))
			time.Sleep(20 * time.Second)
			synctest.Wait()
			closed(t, renewCtx)
			// The store, whose clock is not suspended here, tells whether anything was renewed.
			time.Sleep(30 * time.Second)
			if err := l.Renew(t.Context(), token); !errors.Is(err, ErrLeaseExpired) {
				t.Errorf("renewed by %v", err)
			}
		})
	})
	t.Run("a short sleep is no harm", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, _, renewCtx, asleep := renewed(t)
			asleep.Store(int64(15 * time.Second))
			deadline, ok := LeaseWindow(renewCtx)
			if !ok {
				t.Error("no window after a suspend of 15 s within a TTL of a minute")
			}
			if left := time.Until(deadline); left != 35*time.Second {
				t.Errorf("after 10 s awake and 15 s asleep the window closes in %v", left)
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if renewCtx.Err() != nil {
				t.Errorf("the lease was lost: %v", context.Cause(renewCtx))
			}
		})
	})
	t.Run("an answer to Acquire that was slept through is no lease", func(t *testing.T) {
		l, err := New(memory.New(), Config{TTL: time.Minute, HolderID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		looks := 0
		l.(*lease).now = func() instant {
			now := localNow()
			now.wall = now.wall.Add(time.Duration(looks) * time.Hour)
			looks++
			return now
		}
		token, err := l.Acquire(t.Context(), "w")
		if !errors.Is(err, ErrLeaseWindowExhausted) || token != (Token{}) {
			t.Errorf("acquired %v, %v", token, err)
		}
	})
}

func TestCallThatBeganEarlierDoesNotMoveTheWindowBack(t *testing.T) {
	h := newHold(localNow, localNow(), time.Minute)
	early, late := localNow(), localNow()
	late.at, late.wall = late.at.Add(time.Second), late.wall.Add(time.Second)

	h.extend(late, h.losses)
	h.extend(early, h.losses)
	if h.window.opened != late {
		t.Error("the answer that came last, to the call that began first, moved the window back")
	}
	before := h.begin(late, time.Minute)
	h.lose(ErrFenced)
	h.extend(late, before)
	if h.lost == nil {
		t.Error("a call from before the loss reopened the window")
	}
	h.extend(late, h.begin(late, time.Minute))
	if h.lost != nil {
		t.Error("a later success did not reopen the window")
	}
}

func TestWallClockIsReadWithoutTheMonotonicOne(t *testing.T) {
	// Otherwise the two would never part, and a suspend would go unnoticed.
	if wall := localNow().wall; wall != wall.Round(0) {
		t.Error("the wall reading carries a monotonic one")
	}
}

func TestEndedRenewalsAreForgotten(t *testing.T) {
	l, err := New(memory.New(), Config{TTL: time.Hour, HolderID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	token, err := l.Acquire(t.Context(), "w")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		renewCtx, _ := l.StartRenewal(ctx, token)
		cancel()
		LeaseWindow(renewCtx)
	}
	if n := len(token.hold.renewals); n != 0 {
		t.Errorf("%d ended renewals are kept", n)
	}
}
