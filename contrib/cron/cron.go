// Package cron runs jobs of github.com/robfig/cron on one node of a cluster: each node has the same
// schedule, and a [cron.JobWrapper] lets one of them run the job.
//
// cron tells a job neither a context nor when it was due, and hears no error of it. What
// [schedule.Scheduler.Run] returns is therefore only logged, by the Scheduler's logger; and the task needs
// an AtLeastFor that is longer than the nodes' clocks are apart and shorter than the interval.
package cron

import (
	"context"

	"github.com/robfig/cron/v3"

	"github.com/aetomala/worklease/schedule"
)

// Once returns a wrapper that runs a job as the task, or skips it. Give each job a wrapper of its own, with a
// name of its own, through [cron.NewChain]. ctx is that of every run; a job that is a [ContextJob] gets its
// context, and others cannot be told to stop when the lease is lost.
//
// A panic of the job goes on to cron: put [cron.Recover] before Once in the chain.
func Once(ctx context.Context, s *schedule.Scheduler, task schedule.Task) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		run := func(ctx context.Context) error {
			if aware, ok := job.(ContextJob); ok {
				return aware.RunContext(ctx)
			}
			job.Run()
			return nil
		}
		return cron.FuncJob(s.Func(ctx, task, run))
	}
}

// ContextJob is a job that stops when its context ends. It must be wrapped by Once directly, since other
// wrappers hide the method. Run is not called then.
type ContextJob interface {
	cron.Job
	RunContext(ctx context.Context) error
}

// ContextFunc is a function as a [ContextJob].
type ContextFunc func(ctx context.Context) error

// RunContext calls f.
func (f ContextFunc) RunContext(ctx context.Context) error { return f(ctx) }

// Run calls f without a lease, and loses its error: only a job that is not wrapped by [Once] is run so.
func (f ContextFunc) Run() { _ = f(context.Background()) }
