package schedule

import (
	"context"
	"time"
)

// Observer is told what becomes of the runs of a [Scheduler]. The methods are called synchronously, those
// of several runs concurrently. A slow method delays its run, while the lease is kept; a panic is logged,
// and has no other effect. Nested runs of the same name are not told of, nor are runs that were neither
// begun nor skipped: the error of [Scheduler.Run] says why.
type Observer interface {
	// OnStarted is called under the lease, before the function. With a slot to catch up it is called twice.
	OnStarted(context.Context, StartedEvent)
	// OnFinished is called when the function has returned and the lease is given back.
	OnFinished(context.Context, FinishedEvent)
	// OnSkipped is called when the function was not called since there was no need.
	OnSkipped(context.Context, SkippedEvent)
}

// StartedEvent says that the function is called. Slot is zero without one.
type StartedEvent struct {
	Task string
	Slot time.Time
}

// FinishedEvent says how a run ended. Err is what Run returns.
type FinishedEvent struct {
	Task     string
	Slot     time.Time
	Duration time.Duration
	Err      error
}

// SkippedEvent says why a task was not run here. Holder and Until are as in a [Result].
type SkippedEvent struct {
	Task    string
	Slot    time.Time
	Outcome Outcome
	Holder  string
	Until   time.Time
}

// NoopObserver is an [Observer] that does nothing, to be embedded by those that care for some events only.
type NoopObserver struct{}

func (NoopObserver) OnStarted(context.Context, StartedEvent)   {}
func (NoopObserver) OnFinished(context.Context, FinishedEvent) {}
func (NoopObserver) OnSkipped(context.Context, SkippedEvent)   {}
