package pool

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/pause"
	"github.com/aetomala/worklease/internal/tenure"
)

// fencedAtOnce is how often running a slot may be fenced in short tenures before it pauses.
const fencedAtOnce = 3

// slot is the loop over the tenures of one work ID.
type slot struct {
	pool   *Pool
	workID string
	active *atomic.Bool
	pacing pacing
	fenced int // times running, each soon after acquiring
}

// runSlots returns when every slot has ended. A slot that panics ends the others first.
func (p *Pool) runSlots(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		slots sync.WaitGroup
		dead  atomic.Int64
		broke atomic.Pointer[breakdown]
	)
	for i, pacing := range pacings(time.Now(), len(p.cfg.WorkIDs), p.cfg.IdleInterval) {
		s := &slot{pool: p, workID: p.cfg.WorkIDs[i], active: &p.active[i], pacing: pacing}
		slots.Go(func() {
			returned := false
			defer func() {
				if !returned {
					b := &breakdown{workID: s.workID, value: recover(), stack: debug.Stack()}
					broke.CompareAndSwap(nil, b)
					stop(fmt.Errorf("pool: the slot of %q broke down", s.workID))
				}
			}()
			if s.run(ctx) {
				dead.Add(1)
			}
			returned = true
		})
	}
	slots.Wait()
	if b := broke.Load(); b != nil {
		b.goOn()
	}
	if int(dead.Load()) == len(p.cfg.WorkIDs) {
		return ErrAllSlotsDead
	}
	return nil
}

// run reports whether the slot died.
func (s *slot) run(ctx context.Context) (dead bool) {
	idle, stop, _ := pause.Watch(s.pool.tenure.Lease, s.workID)
	defer stop()
	wait, sleep := s.pacing.first, pause.Sleep
	for sleep(ctx, wait) == nil {
		sleep = pause.Sleep
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
			return false
		case ctx.Err() != nil:
			return false
		case result.Err == nil:
			wait = pause.Jitter(s.pool.cfg.RerunInterval, jitterShare)
		case fenced:
			wait = s.afterFenced(time.Since(began))
			s.pool.cfg.Observer.OnSlotLost(ctx, SlotLostEvent{WorkID: s.workID})
		case isPermanent(result.Err):
			s.pool.cfg.Observer.OnSlotDead(ctx, SlotDeadEvent{WorkID: s.workID, Err: result.Err})
			return true
		case held:
			wait, sleep = s.pacing.wait(time.Now()), idle
		default:
			wait = s.pool.cfg.BackoffInterval
			s.pool.cfg.Observer.OnSlotBackoff(ctx, SlotBackoffEvent{WorkID: s.workID, Err: result.Err, Duration: wait})
		}
	}
	return false
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

// breakdown is a panic in a slot, or a Goexit if value is nil. It is the value that Run panics with, since
// the stack of Run says nothing of where that was.
type breakdown struct {
	workID string
	value  any
	stack  []byte
}

func (b *breakdown) Error() string {
	return fmt.Sprintf("pool: panic in the slot of %q: %v\n\n%s", b.workID, b.value, b.stack)
}

func (b *breakdown) Unwrap() error {
	err, _ := b.value.(error)
	return err
}

// goOn makes the panic, or the Goexit, the caller's.
func (b *breakdown) goOn() {
	if b.value == nil {
		runtime.Goexit()
	}
	panic(b)
}
