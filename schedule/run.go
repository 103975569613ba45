package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/tenure"
)

// Run calls fn if the name of the task is free, and otherwise returns at once and without an error. See the
// package comment for the outcomes.
//
// The context of fn ends when ctx does, when the lease is lost, and with NoKeepAlive when AtMostFor is over;
// [context.Cause] tells which: ctx's cause, [worklease.ErrFenced] or [worklease.ErrLeaseWindowExhausted].
// After the end of ctx the lease is kept until fn has returned. ctx's deadline is not passed on: it is
// seen as a cancellation.
//
// The error is fn's, joined with that of the lease if it was lost or its release failed. An error of fn that
// matches [worklease.ErrRetire] is a success after which a sweep may delete what is stored, the last slot
// included. A panic of fn goes on to the caller, and the name stays taken for AtMostFor as after a crash.
//
// Under the context of a run of the same name, by this Scheduler, Run calls fn directly: the lease is held. The
// task's times and Slot do not count then.
func (s *Scheduler) Run(ctx context.Context, task Task, fn func(ctx context.Context) error) (Result, error) {
	if ctx == nil {
		return Result{}, errNilContext
	}
	if fn == nil {
		return Result{}, fmt.Errorf("worklease: schedule %q: %w", task.Name, ErrFnRequired)
	}
	if err := s.check(task); err != nil {
		return Result{}, err
	}
	for h := heldBy(ctx); h != nil; h = h.outer {
		if h.s == s && h.task.Name == task.Name && h.alive() {
			r := Result{Outcome: OutcomeRan, Holder: s.cfg.HolderID, Started: time.Now()}
			err := fn(ctx)
			r.Took = time.Since(r.Started)
			return r, err
		}
	}
	h, err := s.newHeld(ctx, task)
	if err != nil {
		return Result{}, err
	}
	r := &run{held: h, caller: ctx, fn: fn}
	t := tenure.Run(ctx, task.Name, tenure.Config{
		Lease:          h,
		CleanupTimeout: s.cfg.CleanupTimeout,
		Stateless:      task.Slot.IsZero(),
	}, r.work)
	return r.conclude(t)
}

// run is one Run, from the acquisition of the lease to its release.
type run struct {
	*held
	caller context.Context
	fn     func(ctx context.Context) error

	result Result
	fnErr  error
	errs   []error // of the lease
}

// errCutShort makes the tenure record that the work is not done. What the function returned is kept apart:
// it may match what a tenure draws conclusions from.
var errCutShort = errors.New("the function failed")

// work is what is done while the lease is held.
func (r *run) work(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
	ctx = context.WithValue(ctx, heldKey{}, r.held)
	if r.task.Slot.IsZero() {
		r.call(ctx, r.task.Slot)
		return nil, r.exit()
	}
	last, err := slotsFrom(prior.State)
	if err != nil {
		r.errs = append(r.errs, failed("read the last slot of", token, err))
		return nil, errCutShort
	}
	due, outcome := last.due(r.task.Slot, r.task.CatchUp)
	if len(due) == 0 {
		r.result = Result{Outcome: outcome, Holder: prior.PrevHolderID}
		return nil, nil
	}
	for _, slot := range due {
		last.begin(slot)
		// Without it nobody would know of the slot if this node dies.
		if err := r.Checkpoint(ctx, token, last.state()); err != nil {
			r.errs = append(r.errs, err)
			return nil, errCutShort
		}
		succeeded := r.call(ctx, slot)
		stopped := ctx.Err() != nil || r.caller.Err() != nil // which ctx may not know for a moment
		if stopped && !succeeded {
			return nil, r.exit() // cut short
		}
		last.finished = slot
		if !slot.Equal(r.task.Slot) {
			r.result.CaughtUp = slot
			if stopped {
				r.errs = append(r.errs, failed("run the slot of", token, cmp.Or(context.Cause(r.caller), context.Cause(ctx))))
				break
			}
		}
	}
	return last.state(), r.exit()
}

// call calls the function, for the slot.
func (r *run) call(ctx context.Context, slot time.Time) (succeeded bool) {
	now := time.Now()
	if r.result.Outcome == OutcomeNone {
		r.result = Result{Outcome: OutcomeRan, Holder: r.s.cfg.HolderID, Started: now}
		if r.task.AtLeastFor > 0 {
			r.store.keepUntil(r.began.Add(r.task.AtLeastFor))
		}
	}
	r.mu.Lock()
	r.slot = slot
	r.mu.Unlock()
	r.s.observer.started(ctx, StartedEvent{Task: r.task.Name, Slot: slot})
	defer func() { r.result.Took = time.Since(r.result.Started) }()
	err := r.fn(ctx)
	switch {
	case r.fnErr == nil:
		r.fnErr = err
	case err != nil:
		r.fnErr = errors.Join(r.fnErr, err) // the first is of the slot that was caught up
	}
	return err == nil
}

// exit is what the tenure is told of the function's error.
func (r *run) exit() error {
	switch {
	case r.fnErr == nil:
		return nil
	case errors.Is(r.fnErr, worklease.ErrRetire):
		return worklease.ErrRetire
	}
	return errCutShort
}

// conclude says what became of the run, to the caller, the observer and the log.
func (r *run) conclude(t tenure.Result) (Result, error) {
	observer, ctx := r.s.observer, context.WithoutCancel(r.caller)
	leaseErr := errors.Join(append(r.errs, withoutCutShort(t.Err))...)
	acquired := t.Token != (worklease.Token{})
	if !acquired && errors.Is(t.Err, worklease.ErrLeaseHeld) {
		r.result, leaseErr = skipped(t.Err), nil
	}
	switch r.result.Outcome {
	case OutcomeRan:
		fnErr := r.fnErr
		if errors.Is(fnErr, worklease.ErrRetire) {
			fnErr = nil
		}
		err := fnErr
		if leaseErr != nil {
			err = errors.Join(fnErr, leaseErr)
		}
		observer.finished(ctx, FinishedEvent{Task: r.task.Name, Slot: r.task.Slot, Duration: r.result.Took, Err: err})
		if leaseErr != nil {
			observer.log(ctx, slog.LevelError, "the lease of a scheduled task failed", "task", r.task.Name, "error", leaseErr)
		}
		return r.result, err
	case OutcomeNone:
		if leaseErr != nil && r.caller.Err() == nil {
			observer.log(ctx, slog.LevelError, "scheduled task not run", "task", r.task.Name, "error", leaseErr)
		}
		return r.result, leaseErr
	}
	observer.skipped(ctx, SkippedEvent{Task: r.task.Name, Slot: r.task.Slot, Outcome: r.result.Outcome, Holder: r.result.Holder, Until: r.result.Until})
	if leaseErr != nil { // the lease of a look at the slot was not given back
		observer.log(ctx, slog.LevelError, "the lease of a scheduled task failed", "task", r.task.Name, "error", leaseErr)
	}
	return r.result, leaseErr
}

// skipped is the result of an acquisition that found the name taken.
func skipped(err error) Result {
	r := Result{Outcome: OutcomeHeld}
	if by, ok := errors.AsType[*worklease.HeldError](err); ok {
		r.Holder, r.Until = by.HolderID, by.ExpiresAt
		if by.Exit != worklease.ExitNone {
			r.Outcome = OutcomeTooSoon
		}
	}
	return r
}

// withoutCutShort takes out of a tenure's error what this package put in.
func withoutCutShort(err error) error {
	if err == errCutShort {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || !slices.Contains(joined.Unwrap(), errCutShort) {
		return err
	}
	return errors.Join(slices.DeleteFunc(slices.Clone(joined.Unwrap()), func(e error) bool { return e == errCutShort })...)
}

// lossIn returns what the work's context ends with if err says that the lease is gone.
func lossIn(err error) error {
	switch {
	case errors.Is(err, worklease.ErrFenced):
		return worklease.ErrFenced
	case errors.Is(err, worklease.ErrLeaseExpired):
		return fmt.Errorf("%w: %w", worklease.ErrLeaseWindowExhausted, worklease.ErrLeaseExpired)
	}
	return nil
}
