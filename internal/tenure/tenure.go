// Package tenure is the one life cycle of a lease: acquire, read the checkpoint, renew while the work
// runs, save the final state, release. Packages worker, leader and pool add to it only what makes
// them different.
package tenure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aetomala/worklease"
)

// DefaultCleanupTimeout bounds the final checkpoint and the release together, unless a Config says
// otherwise.
const DefaultCleanupTimeout = 5 * time.Second

// Work is what is done under the lease. ctx ends when the lease is lost, with that cause, and when the
// caller's context does, with its cause; the lease is kept until Work has returned. The state that it
// returns is saved as the final checkpoint: nil leaves the last one as it is, empty clears it. An
// error matching [worklease.ErrRetire] is a success that retires the work.
type Work func(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) (state []byte, err error)

// Config is what the tenures of one runner have in common.
type Config struct {
	Lease          worklease.Lease
	AcquireOptions []worklease.AcquireOption
	RenewalOptions []worklease.RenewalOption
	CleanupTimeout time.Duration // zero and less: DefaultCleanupTimeout

	// Stateless leaves the checkpoint unread: Work gets a zero one.
	Stateless bool
	// OnHeld, if not nil, is called before Work, with the lease being renewed. ctx is Work's. If the lease
	// is lost before OnHeld has returned, Work is not called.
	OnHeld func(ctx context.Context, token worklease.Token)
	// OnLost, if not nil, is called once, in a goroutine of its own, at the moment when the lease is
	// lost while OnHeld or Work has begun and Work not returned. Run does not return before it has.
	OnLost func(worklease.Token)
}

// AcquireReader and CheckpointReleaser are what a Lease may have beyond the interface, as [worklease.New]'s has: two
// calls in one step. Both fail with [errors.ErrUnsupported] where the store cannot, and the calls are then made
// one by one. A wrapper that embeds the interface hides them, so that it sees each call.
type (
	AcquireReader interface {
		AcquireRead(ctx context.Context, workID string, opts ...worklease.AcquireOption) (worklease.Token, worklease.Checkpoint, error)
	}
	CheckpointReleaser interface {
		CheckpointRelease(ctx context.Context, token worklease.Token, state []byte, mode worklease.ExitMode) error
	}
)

// Result says how a tenure ended.
type Result struct {
	// Token is zero if the lease was not acquired.
	Token worklease.Token
	// Exit is what was recorded for the successor; ExitNone if nothing was.
	Exit worklease.ExitMode
	// Lost says that the lease was lost before an exit could be recorded: somebody else took over, or
	// it ran out.
	Lost bool
	// Err is nil only if the work succeeded and its exit is recorded. It matches
	// [worklease.ErrFenced] whenever the tenure ended that way.
	Err error
}

// Run goes through one tenure of workID. A panic of work, or a [runtime.Goexit], ends the renewal and
// goes on to the caller; the successor sees an expired lease.
func Run(ctx context.Context, workID string, cfg Config, work Work) Result {
	token, prior, err := begin(ctx, workID, cfg)
	if err != nil {
		return Result{Token: token, Err: err}
	}
	state, err, lost := hold(ctx, token, prior, cfg, work)
	switch {
	case errors.Is(err, worklease.ErrFenced):
		return Result{Token: token, Lost: true, Err: err}
	case errors.Is(lost, worklease.ErrFenced):
		return Result{Token: token, Lost: true, Err: failed("keep", token, lost)}
	case lost != nil:
		return Result{Token: token, Lost: true, Err: errors.Join(err, failed("keep", token, lost))}
	}
	return conclude(ctx, token, cfg, state, err)
}

// begin acquires the lease and reads the checkpoint, in one step if the lease can.
func begin(ctx context.Context, workID string, cfg Config) (token worklease.Token, prior worklease.Checkpoint, err error) {
	if one, ok := cfg.Lease.(AcquireReader); ok && !cfg.Stateless {
		token, prior, err = one.AcquireRead(ctx, workID, cfg.AcquireOptions...)
		if !errors.Is(err, errors.ErrUnsupported) {
			return token, prior, err
		}
	}
	token, err = cfg.Lease.Acquire(ctx, workID, cfg.AcquireOptions...)
	if err != nil || cfg.Stateless {
		return token, prior, err
	}
	// Without it the work cannot be resumed, nor may it start over. If it cannot be read the lease is left to
	// lapse, as if this holder had died, so that the successor finds all there was.
	prior, err = cfg.Lease.ReadCheckpoint(ctx, token)
	return token, prior, err
}

// hold runs work with the lease being renewed, and returns what it returned and why the lease was lost
// meanwhile, if it was.
func hold(ctx context.Context, token worklease.Token, prior worklease.Checkpoint, cfg Config, work Work) (state []byte, err, lost error) {
	// Work that is told to stop needs its lease until it has saved what it has: the renewal does not
	// end with ctx, only the work's own context does.
	renewCtx, stopRenewal := cfg.Lease.StartRenewal(context.WithoutCancel(ctx), token, cfg.RenewalOptions...)
	defer stopRenewal()
	// Work does not begin under a lease that is lost, as after a read that took too long, or that is not
	// renewed.
	switch cause := context.Cause(renewCtx); {
	case isLoss(cause):
		return nil, nil, cause
	case cause != nil:
		return nil, failed("keep", token, cause), nil
	}
	workCtx, cancel := context.WithCancelCause(renewCtx)
	defer cancel(nil)
	pass := func() { cancel(context.Cause(ctx)) }
	defer context.AfterFunc(ctx, pass)()
	if ctx.Err() != nil {
		pass() // AfterFunc may take a moment
	}
	end := watch(renewCtx, func() {
		if cfg.OnLost != nil {
			cfg.OnLost(token)
		}
	})
	defer func() { lost = end() }() // also when work panics

	if cfg.OnHeld != nil {
		cfg.OnHeld(workCtx, token)
		worklease.LeaseWindow(renewCtx) // as below
		if isLoss(context.Cause(renewCtx)) {
			return nil, nil, nil // end says what it was lost to
		}
	}
	state, err = work(workCtx, token, prior)

	stopRenewal()
	worklease.LeaseWindow(renewCtx) // a window that closed unnoticed, as in a suspend, is noticed here
	return state, err, nil
}

func isLoss(cause error) bool {
	return errors.Is(cause, worklease.ErrFenced) || errors.Is(cause, worklease.ErrLeaseWindowExhausted)
}

// watch calls onLost when renewCtx ends because the lease is lost. The function that it returns ends
// the watch, waits for onLost if that has begun, and returns what the lease was lost to. A loss that
// comes later is none: onLost and the outcome agree.
func watch(renewCtx context.Context, onLost func()) (end func() error) {
	t := newTask(func() error {
		cause := context.Cause(renewCtx)
		if !isLoss(cause) {
			return nil
		}
		onLost()
		return cause
	})
	stop := context.AfterFunc(renewCtx, t.run)
	return func() error {
		if stop() {
			// Not told yet. But the work may have been, since those who wait for a context are told one after
			// the other: what counts is whether it has ended by now.
			if !isLoss(context.Cause(renewCtx)) {
				return nil
			}
			go t.run()
		}
		<-t.done
		return t.result()
	}
}

// conclude saves the final state and releases the lease, both within the cleanup timeout and whatever
// becomes of ctx.
func conclude(ctx context.Context, token worklease.Token, cfg Config, state []byte, err error) Result {
	exit := worklease.ExitAbandoned
	done := err // what the tenure has come to, if all goes well
	switch {
	case err == nil:
		exit = worklease.ExitFinished
	case errors.Is(err, worklease.ErrRetire):
		exit, done = worklease.ExitRetired, nil
	}

	timeout := cfg.CleanupTimeout
	if timeout <= 0 {
		timeout = DefaultCleanupTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()

	var saveErr error
	if state != nil {
		var released bool
		released, saveErr = save(ctx, token, cfg, timeout-timeout/4, state, exit)
		switch {
		case errors.Is(saveErr, worklease.ErrFenced):
			return Result{Token: token, Lost: true, Err: saveErr}
		case saveErr != nil:
			exit = worklease.ExitAbandoned // what the work did last is not there to be built upon
		case released:
			return Result{Token: token, Exit: exit, Err: done}
		}
	}
	releaseErr := within(ctx, "release", token, func() error { return cfg.Lease.Release(ctx, token, exit) })
	switch {
	case errors.Is(releaseErr, worklease.ErrFenced):
		return Result{Token: token, Lost: true, Err: errors.Join(saveErr, releaseErr)}
	case releaseErr != nil:
		lost := errors.Is(releaseErr, worklease.ErrLeaseExpired)
		return Result{Token: token, Lost: lost, Err: errors.Join(err, saveErr, releaseErr)}
	case saveErr != nil:
		return Result{Token: token, Exit: exit, Err: errors.Join(err, saveErr)}
	}
	return Result{Token: token, Exit: exit, Err: done}
}

// save saves the final state, and releases the lease in the same step if that can be done. A save that hangs
// must leave time for the release, without which the work waits for the TTL.
//
// If it fails, the release that follows records an exit only where the step recorded none, even if it should
// take effect yet: the store carries out one of the two, and refuses the other.
func save(ctx context.Context, token worklease.Token, cfg Config, timeout time.Duration, state []byte, exit worklease.ExitMode) (released bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var inOne bool // written by a call that may outlast this one: to be read only if that has been answered
	err = within(ctx, "save the final state of", token, func() error {
		if one, ok := cfg.Lease.(CheckpointReleaser); ok {
			err := one.CheckpointRelease(ctx, token, state, exit)
			if !errors.Is(err, errors.ErrUnsupported) {
				inOne = err == nil
				return err
			}
		}
		return cfg.Lease.Checkpoint(ctx, token, state)
	})
	if err != nil {
		return false, err
	}
	return inOne, nil
}

func failed(verb string, token worklease.Token, err error) error {
	return fmt.Errorf("worklease: %s %q as %q: %w", verb, token.WorkID(), token.HolderID(), err)
}
