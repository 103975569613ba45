package worklease

import (
	"context"
	"fmt"
	"time"
)

// LeaseObserver is told of every call that a [Lease] makes to its store, whoever asked for it:
// waiting, background renewal and the runners of this module included. What is refused before it
// reaches the store makes no event.
//
// The methods are called synchronously after the store has answered, in the goroutine of the call,
// hence from many goroutines; the window has been moved, or closed, by then. A slow method delays the
// caller. A method that blocks or panics in background renewal costs the lease: the context of the
// work ends with its window, at once after a panic. A panic elsewhere goes up to the caller.
//
// Err is what the caller gets: match it with [errors.Is] to tell contention ([ErrLeaseHeld]) and the
// end of a context from faults. Duration is that of the one call to the store.
type LeaseObserver interface {
	// OnAcquire is called after each attempt of an Acquire.
	OnAcquire(context.Context, AcquireEvent)
	OnCheckpoint(context.Context, CheckpointEvent)
	// OnRenew is called after each attempt, of an explicit Renew and of background renewal.
	OnRenew(context.Context, RenewEvent)
	OnRelease(context.Context, ReleaseEvent)
	OnReadCheckpoint(context.Context, ReadCheckpointEvent)
	OnForget(context.Context, ForgetEvent)
	// OnFenced is called after the event of a Checkpoint, Renew, Release or Forget that was fenced.
	OnFenced(context.Context, FencedEvent)
}

// AcquireEvent describes one attempt to acquire. Token is zero if Err is not nil.
type AcquireEvent struct {
	WorkID   string
	Token    Token
	Duration time.Duration
	Err      error
}

// CheckpointEvent describes one Checkpoint, of Size bytes of state.
type CheckpointEvent struct {
	Token    Token
	Size     int
	Duration time.Duration
	Err      error
}

// RenewEvent describes one attempt to renew. Attempt counts from 1 within one renewal: more than 1 is
// a retry.
type RenewEvent struct {
	Token    Token
	Duration time.Duration
	Attempt  int
	Err      error
}

// ReleaseEvent describes one Release.
type ReleaseEvent struct {
	Token    Token
	Mode     ExitMode
	Duration time.Duration
	Err      error
}

// ReadCheckpointEvent describes one ReadCheckpoint, which found Size bytes of state.
type ReadCheckpointEvent struct {
	Token        Token
	PrevExit     ExitMode
	PrevHolderID string
	Size         int
	Duration     time.Duration
	Err          error
}

// ForgetEvent describes one Forget.
type ForgetEvent struct {
	Token    Token
	Duration time.Duration
	Err      error
}

// FencedEvent says which operation of a superseded holder was refused.
type FencedEvent struct {
	Token     Token
	Operation Operation
}

// Operation names what was fenced. The zero Operation names nothing.
type Operation uint8

// The operations that OnFenced is called for.
const (
	OperationCheckpoint Operation = iota + 1
	OperationRenew
	OperationRelease
	OperationForget
)

var operationNames = [...]string{
	OperationCheckpoint: "Checkpoint",
	OperationRenew:      "Renew",
	OperationRelease:    "Release",
	OperationForget:     "Forget",
}

// String returns the name of the method, such as "Checkpoint".
func (o Operation) String() string {
	if o > 0 && int(o) < len(operationNames) {
		return operationNames[o]
	}
	return fmt.Sprintf("Operation(%d)", uint8(o))
}

// NoopObserver is a [LeaseObserver] that does nothing, to be embedded by those that care for some
// events only.
type NoopObserver struct{}

func (NoopObserver) OnAcquire(context.Context, AcquireEvent)               {}
func (NoopObserver) OnCheckpoint(context.Context, CheckpointEvent)         {}
func (NoopObserver) OnRenew(context.Context, RenewEvent)                   {}
func (NoopObserver) OnRelease(context.Context, ReleaseEvent)               {}
func (NoopObserver) OnReadCheckpoint(context.Context, ReadCheckpointEvent) {}
func (NoopObserver) OnForget(context.Context, ForgetEvent)                 {}
func (NoopObserver) OnFenced(context.Context, FencedEvent)                 {}
