package pool

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/pause"
	"github.com/aetomala/worklease/internal/tenure"
)

// fencedAtOnce is how often running a slot may be fenced in short tenures before it pauses.
const fencedAtOnce = 3

// slot is the place of one work ID in a Run. It belongs to the goroutine of its turn, while that is on,
// and to that of Run otherwise.
type slot struct {
	pool   *Pool
	workID string
	active *atomic.Bool
	pacing pacing
	fenced int // times running, each soon after acquiring

	// What it waits for while its turn is not on.
	idle  bool      // for the lease to become free
	found bool      // a look says that it is: the slot will try when it is due
	since time.Time // when it was refused last
	woken time.Time // when it was told last that the lease may be free
	due   time.Time // of its next turn, if it is on the agenda
	place int       // on the agenda, from 1; 0 if it is not there

	sleep  func(context.Context, time.Duration) error // nil: nobody tells what becomes free
	stop   func()                                     // ends what tells; may be called again
	deafen func()                                     // ends the listening, if it has begun
}

// deaf ends the listening.
func (s *slot) deaf() {
	if s.deafen != nil {
		s.deafen()
		s.deafen = nil
	}
}

// then is what a slot does after a turn.
type then int

const (
	ends   then = iota
	dies        // ends, and is dead
	idles       // until it is worth trying
	goesOn      // after a wait
)

// turn is one attempt at the lease and, if it is had, one tenure. It does what the table of the package
// comment says.
func (s *slot) turn(ctx context.Context) (next then, wait time.Duration) {
	began := time.Now()
	result := s.attempt(ctx)
	acquired := result.Token != (worklease.Token{})
	fenced := acquired && errors.Is(result.Err, worklease.ErrFenced)
	held := !acquired && errors.Is(result.Err, worklease.ErrLeaseHeld)
	if !fenced {
		s.fenced = 0
	}
	if !held {
		s.pacing.displaced()
	}
	switch {
	case result.Exit == worklease.ExitRetired:
		s.pool.cfg.Observer.OnSlotRetired(ctx, SlotRetiredEvent{WorkID: s.workID})
		return ends, 0
	case ctx.Err() != nil:
		return ends, 0
	case result.Err == nil:
		return goesOn, pause.Jitter(s.pool.cfg.RerunInterval, jitterShare)
	case fenced:
		wait := s.afterFenced(time.Since(began))
		s.pool.cfg.Observer.OnSlotLost(ctx, SlotLostEvent{WorkID: s.workID})
		return goesOn, wait
	case isPermanent(result.Err):
		s.pool.cfg.Observer.OnSlotDead(ctx, SlotDeadEvent{WorkID: s.workID, Err: result.Err})
		return dies, 0
	case held:
		return idles, 0
	default:
		wait := s.pool.cfg.BackoffInterval
		s.pool.cfg.Observer.OnSlotBackoff(ctx, SlotBackoffEvent{WorkID: s.workID, Err: result.Err, Duration: wait})
		return goesOn, wait
	}
}

// attempt goes through one tenure, if the lease can be had. The slot is active from its event until WorkFn
// has returned.
func (s *slot) attempt(ctx context.Context) tenure.Result {
	cfg := s.pool.tenure
	cfg.OnHeld = func(context.Context, worklease.Token) {
		s.active.Store(true)
		s.pool.cfg.Observer.OnSlotAcquired(ctx, SlotAcquiredEvent{WorkID: s.workID})
	}
	defer s.active.Store(false) // also if WorkFn is not called
	return tenure.Run(ctx, s.workID, cfg, func(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
		defer s.active.Store(false)
		return s.pool.workFn(ctx, s.workID, token, prior)
	})
}

// afterFenced returns how long to wait after a tenure that was fenced. The Acquire that follows finds the
// lease held, as a rule. If it does not, time and again, the stored lease must be vanishing.
func (s *slot) afterFenced(took time.Duration) time.Duration {
	if took >= s.pool.cfg.BackoffInterval {
		s.fenced = 0
		return 0
	}
	if s.fenced++; s.fenced < fencedAtOnce {
		return 0
	}
	return s.pool.cfg.BackoffInterval
}
