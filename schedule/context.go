package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aetomala/worklease"
)

// ErrNotHeld says that a context is not that of a run, nor of a [Lock].
var ErrNotHeld = errors.New("worklease: schedule: the context is of no run")

type heldKey struct{}

// heldBy returns the innermost run that ctx belongs to, or nil.
func heldBy(ctx context.Context) *held {
	if ctx == nil {
		return nil
	}
	h, _ := ctx.Value(heldKey{}).(*held)
	return h
}

// Held returns the token of the run, or the [Lock], that ctx belongs to; of runs within each other, the
// innermost. ok is false where there is none, and once the lease is lost or given up. The lease outlives the
// end of the caller's context: until the function has returned it is held.
//
// [scheduletest.Context] makes such a context for a test.
//
// [scheduletest.Context]: https://pkg.go.dev/github.com/aetomala/worklease/schedule/scheduletest#Context
func Held(ctx context.Context) (token worklease.Token, ok bool) {
	h := heldBy(ctx)
	if h == nil || !h.alive() {
		return worklease.Token{}, false
	}
	_, token = h.now()
	return token, true
}

// MustHold returns the token as [Held] does, and panics where there is none: it is for code that must never
// run by itself.
func MustHold(ctx context.Context) worklease.Token {
	token, ok := Held(ctx)
	if !ok {
		panic("worklease: schedule: MustHold: not under a lease that is held")
	}
	return token
}

// SlotOf returns the slot that the run is for which ctx belongs to: that of the task, or one that is caught
// up. ok is false where there is none.
func SlotOf(ctx context.Context) (slot time.Time, ok bool) {
	h := heldBy(ctx)
	if h == nil {
		return time.Time{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.slot, !h.slot.IsZero()
}

// Extend gives the run, or the [Lock], that ctx belongs to a new AtMostFor and AtLeastFor, both counted from
// now: nothing is added to what was left, and the new times may be shorter. With NoKeepAlive the function's
// context ends atMost from now; otherwise renewals go on with the new time.
//
// A lease that has ended cannot be extended, nor that of a function that has returned or panicked: the error
// then matches [worklease.ErrLeaseExpired] or [worklease.ErrFenced]. After any other error the lease has the time that it had, or more. Where ctx
// belongs to no run, the error is [ErrNotHeld].
//
// While a renewal that gives less time is without an answer, or ended without a verdict, the context is
// given no more than that renewal: it might arrive later. The name is taken for the whole time.
func Extend(ctx context.Context, atMost, atLeast time.Duration) error {
	h := heldBy(ctx)
	if h == nil {
		return fmt.Errorf("%w: nothing to extend", ErrNotHeld)
	}
	return h.extend(ctx, atMost, atLeast)
}
