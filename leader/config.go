package leader

import (
	"context"
	"time"

	"github.com/aetomala/worklease"
)

const (
	defaultIdleInterval    = time.Second
	defaultBackoffInterval = time.Second // of Run
	// jitter keeps processes that failed together from standing again together.
	jitter = 0.2
)

// Config configures [Elect] and [Run]. The zero value is ready to use.
//
// The callbacks get the caller's context, which may have ended, and neither Elect nor Run returns before
// they have. A slow one delays neither the renewal nor the end of the lease window. A panic of one goes on
// to the caller, as the function's does, once the function has returned.
type Config struct {
	// AcquireOptions are those of every Acquire: with none, Elect asks once.
	AcquireOptions []worklease.AcquireOption
	RenewalOptions []worklease.RenewalOption

	// IdleInterval is the pause after somebody else was found to lead, and up to 20 % more. In Run it ends
	// early on a store that tells when the lease is released. Zero and less mean 1 s.
	IdleInterval time.Duration
	// BackoffInterval is the pause after an acquisition that failed otherwise, and after each term
	// that was not fenced. Zero and less mean none for Elect, and 1 s for Run.
	BackoffInterval time.Duration
	// CleanupTimeout bounds the release, by the local clock and whatever the store does. Zero and less
	// mean 5 s.
	CleanupTimeout time.Duration

	// OnElected is called when the lease is acquired, before the function. A slow one takes of the
	// term: the lease is renewed meanwhile, and if it is lost the function is not called any more.
	OnElected func(ctx context.Context, token worklease.Token)
	// OnLost is called once for a term in which somebody else took over or the lease window ran out,
	// not when ctx ended. It is called at that moment and in a goroutine of its own, while OnElected
	// or the function may still be running; where only the release brings the loss to light, after it.
	OnLost func(ctx context.Context, token worklease.Token)
	// OnRelinquished is called after the lease has been released as finished or retired.
	OnRelinquished func(ctx context.Context, token worklease.Token)
	// OnError is told by Run of each error that it goes on from, but not of
	// [worklease.ErrLeaseHeld]. It is called before the pause. Elect does not call it: it returns the error.
	OnError func(ctx context.Context, err error)

	// Health, if not nil, is kept up to date for a health check.
	Health *Health
}
