package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/aetomala/worklease"
)

// Lock is a task's name, taken by hand. It is safe for concurrent use.
type Lock struct {
	held *held
	ctx  context.Context
}

// Lock takes the name of the task, for code that is no function. If it is taken already, the Lock is nil and
// the error matches [worklease.ErrLeaseHeld], with a [*worklease.HeldError] in it if the store knows who: it
// does so too under the context of a run of the same name. Any other error is trouble with the store. A Slot
// is refused: it needs a function to be finished.
//
// ctx bounds the call alone, and lends its values to [Lock.Context]. Unless the task says NoKeepAlive the
// lease is renewed until Unlock, and if that is never called, for as long as the process lives.
func (s *Scheduler) Lock(ctx context.Context, task Task) (*Lock, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	if err := s.check(task); err != nil {
		return nil, err
	}
	if !task.Slot.IsZero() {
		return nil, fmt.Errorf("worklease: schedule %q: %w: a Lock has no Slot", task.Name, ErrTaskInvalid)
	}
	h, err := s.newHeld(ctx, task)
	if err != nil {
		return nil, err
	}
	token, err := h.Acquire(ctx, task.Name)
	if err != nil {
		return nil, err
	}
	if task.AtLeastFor > 0 {
		h.store.keepUntil(h.began.Add(task.AtLeastFor))
	}
	leaseCtx, _ := h.StartRenewal(context.WithoutCancel(ctx), token)
	return &Lock{held: h, ctx: context.WithValue(leaseCtx, heldKey{}, h)}, nil
}

// Context ends when the lock is lost, when it is unlocked, and with NoKeepAlive when AtMostFor is over. Its
// [context.Cause] then matches [worklease.ErrFenced] or [worklease.ErrLeaseWindowExhausted], the latter also
// after an Unlock. Code under it finds the lock with [Held].
func (l *Lock) Context() context.Context { return l.ctx }

// Token returns the token of the tenure.
func (l *Lock) Token() worklease.Token {
	_, token := l.held.now()
	return token
}

// Extend does for a Lock what [Extend] does for a run.
func (l *Lock) Extend(ctx context.Context, atMost, atLeast time.Duration) error {
	if ctx == nil {
		return errNilContext
	}
	return l.held.extend(ctx, atMost, atLeast)
}

// Unlock gives the name back, at once or when AtLeastFor is over, and waits only for the store. It ends
// the context. When it comes too late it changes nothing, whoever has the name by then: the error then
// matches [worklease.ErrFenced] or [worklease.ErrLeaseExpired]. So it is with a second Unlock.
//
// Under a ctx that has ended nothing is given back: see [context.WithoutCancel]. After that, and after trouble with
// the store, Unlock may be called again; otherwise the name is free AtMostFor after the last renewal.
func (l *Lock) Unlock(ctx context.Context) error {
	l.held.stop()
	err := l.held.Release(ctx, worklease.Token{}, worklease.ExitFinished)
	l.held.cancel(fmt.Errorf("%w: unlocked", worklease.ErrLeaseWindowExhausted))
	return err
}
