// Package gocron makes gocron v2 run jobs on one node of a cluster: by a [Locker], which takes a lease for
// each run, or by an [Elector], which lets one node run everything.
//
// What gocron does not do with them:
//
//   - It ignores the error of an Unlock. The Locker logs it.
//   - It gives a job the context of the scheduler, not that of the lock. A job that is to stop when its
//     lease is lost looks for itself, or uses [schedule.Scheduler.Run] in its function, without a Locker.
//   - It cancels the context that it unlocks with in a shutdown. The Locker unlocks all the same.
//   - It does not tell a run when it was due, so that a Locker cannot make it one run for each instant: give
//     it an AtLeastFor longer than the nodes' clocks are apart, and shorter than the interval.
//   - It does not tell a job that was skipped from one whose Lock failed, as with a task that is not valid: neither
//     runs, and nothing is said. The error of Lock does, to an event listener for gocron.AfterLockError: a skip
//     matches [worklease.ErrLeaseHeld].
package gocron

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/schedule"
)

// unlockTimeout bounds an Unlock, whose caller's context may have ended.
const unlockTimeout = 5 * time.Second

// Locker is a [gocron.Locker].
type Locker struct {
	scheduler *schedule.Scheduler
	task      schedule.Task
	logger    *slog.Logger
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker, each lock of which is a [schedule.Lock] of s for a task like task, whose Name
// is set in front of gocron's key. gocron's key is the job's name: give jobs names. logger gets the errors
// of Unlock; nil means [slog.Default].
func NewLocker(s *schedule.Scheduler, task schedule.Task, logger *slog.Logger) *Locker {
	return &Locker{scheduler: s, task: task, logger: logger}
}

// Lock implements [gocron.Locker].
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	task := l.task
	task.Name += key
	held, err := l.scheduler.Lock(ctx, task)
	if err != nil {
		return nil, err
	}
	return &lock{held: held, logger: l.logger}, nil
}

type lock struct {
	held   *schedule.Lock
	logger *slog.Logger
}

// Unlock implements [gocron.Lock].
func (l *lock) Unlock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	err := l.held.Unlock(ctx)
	if err != nil {
		logger := l.logger
		if logger == nil {
			logger = slog.Default()
		}
		logger.ErrorContext(ctx, "worklease: unlocking after a job failed", "job", l.held.Token().WorkID(), "error", err)
	}
	return err
}

// ErrNotLeader says that this node does not lead, or cannot be sure of it.
var ErrNotLeader = errors.New("worklease: gocron: this node is not the leader")

// Elector is a [gocron.Elector] that asks no store: it looks whether the lease window of this node's
// leadership is open. The zero Elector is ready to use, and does not lead. Its Lead is the function for
// leader.Run, which is to run beside the scheduler:
//
//	var elector gocron.Elector
//	go leader.Run(ctx, lease, "cron", leader.Config{}, elector.Lead)
//
// gocron asks before each run and never again: a run that has begun is not told when the leadership ends.
type Elector struct {
	term atomic.Pointer[context.Context]
}

var _ gocron.Elector = (*Elector)(nil)

// Lead leads until ctx ends, and returns its cause.
func (e *Elector) Lead(ctx context.Context) error {
	term := &ctx
	e.term.Store(term)
	defer e.term.CompareAndSwap(term, nil)
	<-ctx.Done()
	return context.Cause(ctx)
}

// IsLeader implements [gocron.Elector].
func (e *Elector) IsLeader(context.Context) error {
	if term := e.term.Load(); term != nil && (*term).Err() == nil {
		if _, ok := worklease.LeaseWindow(*term); ok {
			return nil
		}
	}
	return ErrNotLeader
}
