package pool

import (
	"context"
	"time"
)

// Observer is told what becomes of the slots of a [Pool]. What their calls to the store do is told to the
// [worklease.LeaseObserver] of the lease.
//
// The methods are called synchronously: those of one slot one after the other, those of several
// concurrently. A slow method delays its slot alone; the wait that follows an event begins when the method
// has returned. The context is that of Run, and may have ended when OnSlotRetired is called. After its
// end no other method is, except for an OnSlotAcquired that was on its way. A panic stops the pool, as Run
// says.
type Observer interface {
	// OnSlotAcquired is called under the lease when WorkFn starts: the slot is active, and WorkFn is
	// called next. A slow method does not delay renewal; if the lease is lost meanwhile, WorkFn is not
	// called any more.
	OnSlotAcquired(context.Context, SlotAcquiredEvent)
	// OnSlotLost is called when a run was fenced, after WorkFn has returned, if it had begun.
	OnSlotLost(context.Context, SlotLostEvent)
	// OnSlotBackoff is called when a run ended with an error that the table of the package comment has no
	// other row for.
	OnSlotBackoff(context.Context, SlotBackoffEvent)
	// OnSlotDead is called when a run ended with a [PermanentError]. The slot has ended.
	OnSlotDead(context.Context, SlotDeadEvent)
	// OnSlotRetired is called when the work is retired, and that is recorded. The slot has ended.
	OnSlotRetired(context.Context, SlotRetiredEvent)
}

// SlotAcquiredEvent says that WorkFn starts.
type SlotAcquiredEvent struct{ WorkID string }

// SlotLostEvent says that another tenure has begun, or that the stored lease is gone.
type SlotLostEvent struct{ WorkID string }

// SlotBackoffEvent says why a slot waits, and for how long: Duration is the BackoffInterval.
type SlotBackoffEvent struct {
	WorkID   string
	Err      error
	Duration time.Duration
}

// SlotDeadEvent says why a slot ended. Err is the error of the run, with the PermanentError in its chain.
type SlotDeadEvent struct {
	WorkID string
	Err    error
}

// SlotRetiredEvent says that there is nothing more to do for WorkID.
type SlotRetiredEvent struct{ WorkID string }

// NoopObserver is an [Observer] that does nothing, to be embedded by those that care for some events
// only.
type NoopObserver struct{}

func (NoopObserver) OnSlotAcquired(context.Context, SlotAcquiredEvent) {}
func (NoopObserver) OnSlotLost(context.Context, SlotLostEvent)         {}
func (NoopObserver) OnSlotBackoff(context.Context, SlotBackoffEvent)   {}
func (NoopObserver) OnSlotDead(context.Context, SlotDeadEvent)         {}
func (NoopObserver) OnSlotRetired(context.Context, SlotRetiredEvent)   {}
