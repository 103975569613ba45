// Package prompt is what the stores have in common of a call: that it returns soon after its context ends,
// whatever the driver under it does, and how its failure is told.
package prompt

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/aetomala/worklease/backend"
)

const (
	// Grace is how long a call waits, once its context has ended, for a driver that is only about to
	// notice: its error says more than the context's alone.
	Grace = 20 * time.Millisecond
	// MaxStuck bounds the calls that nobody waits for any more. Each keeps a connection from others.
	MaxStuck = 128
	// Outlast is how long an Acquire goes on when its caller has left. One that is cancelled at once may have
	// won all the same, and nobody would ever learn its token.
	Outlast = 2 * time.Second
	// UndoTimeout bounds the attempt to take back an acquisition.
	UndoTimeout = 5 * time.Second
)

var errNilContext = errors.New("the context is nil")

// Calls are those of one store. The zero value is ready to use.
type Calls struct{ stuck atomic.Int64 }

// Stuck returns how many calls go on although their callers have left.
func (c *Calls) Stuck() int64 { return c.stuck.Load() }

// Do makes a call that returns soon after ctx ends, also if the driver does not. Such a call goes on by
// itself, with its connection, which nobody else is given meanwhile. If it succeeds after all, late is called,
// unless that is nil. A call that comes while MaxStuck go on so fails with errStuck. Errors have no context
// yet: see Failed.
func (c *Calls) Do(ctx context.Context, call func(context.Context) error, late func(), errStuck error) error {
	if ctx == nil {
		return errNilContext
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() == nil {
		return call(ctx)
	}
	if c.stuck.Load() >= MaxStuck {
		return errStuck
	}
	answer, left := make(chan error), make(chan struct{})
	go func() {
		growStack()
		err := call(ctx)
		select {
		case answer <- err:
			return
		case <-left:
		}
		if err == nil && late != nil {
			late()
		}
		c.stuck.Add(-1)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(Grace)
	defer timer.Stop()
	select {
	case err := <-answer:
		return err
	case <-timer.C:
		c.stuck.Add(1)
		close(left)
		return ctx.Err()
	}
}

// Failed gives an error its context: the store and the operation, and the end of ctx if that is not in it. It
// returns nil for nil, and the sentinels of package backend as they are: they are answers, not failures. ctx
// may be nil.
func Failed(ctx context.Context, what string, err error) error {
	if err == nil || IsAnswer(err) {
		return err
	}
	if ended := Ended(ctx); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%s: %w: %w", what, ended, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Ended is ctx.Err() for those who look a moment later: a driver that gives its socket the deadline of
// ctx may be back before ctx has noticed. It is nil for a nil ctx.
func Ended(ctx context.Context) error {
	if ctx == nil {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) && ctx.Err() == nil {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// IsAnswer reports whether err is what the store says of the lease.
func IsAnswer(err error) bool {
	return errors.Is(err, backend.ErrFenced) || errors.Is(err, backend.ErrLeaseExpired) || errors.Is(err, backend.ErrLeaseHeld)
}
