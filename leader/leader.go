// Package leader runs a function in one process at a time: [Elect] stands for election once, and [Run]
// keeps on standing until the function has finished.
//
// A leader is the holder of the lease on a work ID. Its function runs under a context that ends when the
// lease is lost, and from the end of the lease window on another process may lead: a function that does
// not stop by then is a second leader, which nothing but its own context can prevent. What leaders
// write elsewhere is fenced only where it carries the token's fencing token.
//
// How a term ends follows from the function's result; the first row that fits counts:
//
//	what happens                  recorded   callbacks after OnElected  Elect returns
//	the lease is not acquired     -          none, nor OnElected        that error, after a pause
//	fenced                        nothing    OnLost                     an error matching ErrFenced, at once
//	the lease window ran out      nothing    OnLost                     the function's error joined with the cause
//	an error matching ErrRetire   retired    OnRelinquished             nil
//	nil                           finished   OnRelinquished             nil
//	any other error               abandoned  none                       that error
//	a panic or runtime.Goexit     nothing    OnLost, if it was lost     it goes on to the caller of Elect
//
// Where nothing is recorded, nobody leads until the lease has run out. An error of the release is
// returned too, joined with the function's: nil always means that the term's exit is recorded.
package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/pause"
	"github.com/aetomala/worklease/internal/tenure"
)

var (
	// ErrLeaseRequired says that Elect or Run got no Lease. It matches [worklease.ErrConfigInvalid].
	ErrLeaseRequired = fmt.Errorf("%w: leader: a Lease is required", worklease.ErrConfigInvalid)
	// ErrFnRequired says that Elect or Run got no function. It matches [worklease.ErrConfigInvalid].
	ErrFnRequired = fmt.Errorf("%w: leader: a function is required", worklease.ErrConfigInvalid)

	errNilContext = errors.New("worklease: leader: the context is nil")
)

// Elect stands for election on workID once: it acquires the lease, runs fn while the lease is renewed,
// and releases it, as the package comment says. Without [worklease.WithWaitForLease] it asks once.
//
// The context of fn ends when the lease is lost or when ctx ends, and [context.Cause] tells which;
// [worklease.LeaseWindow] says how long leadership is sure. When ctx ends the lease stays renewed until
// fn has returned, however long that takes. ctx's deadline is not passed on: fn sees
// [context.Canceled], with [context.DeadlineExceeded] as the cause.
//
// Elect pauses before it returns an error, so that calling it in a loop does no harm: with
// [worklease.ErrLeaseHeld] for IdleInterval, with any other error of the acquisition, and after every
// term that was not fenced, for BackoffInterval. The lease is released before that. An error of a context
// is returned at once, and the end of ctx ends every pause.
//
// Elect may be called concurrently, also with one Config.
func Elect(ctx context.Context, lease worklease.Lease, workID string, cfg Config, fn func(ctx context.Context) error) error {
	if err := check(ctx, lease, fn); err != nil {
		return err
	}
	defer cfg.Health.rest()
	t := &term{ctx: ctx, cfg: cfg, fn: fn}
	result := t.serve(lease, workID)
	cfg.Health.wait(ctx, cfg.pauseAfter(result), pause.Sleep)
	return result.Err
}

func check(ctx context.Context, lease worklease.Lease, fn func(context.Context) error) error {
	switch {
	case lease == nil:
		return ErrLeaseRequired
	case fn == nil:
		return ErrFnRequired
	case ctx == nil:
		return errNilContext
	}
	return nil
}

// pauseAfter returns how long Elect waits before it returns.
func (cfg Config) pauseAfter(result tenure.Result) time.Duration {
	elected := result.Token != worklease.Token{}
	switch {
	case elected && errors.Is(result.Err, worklease.ErrFenced):
		return 0
	case elected:
		return cfg.BackoffInterval
	case errors.Is(result.Err, worklease.ErrLeaseHeld):
		return cfg.idle()
	case isContextError(result.Err):
		return 0
	}
	return cfg.BackoffInterval
}

func (cfg Config) idle() time.Duration {
	d := cfg.IdleInterval
	if d <= 0 {
		d = defaultIdleInterval
	}
	return pause.Jitter(d, jitter)
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
