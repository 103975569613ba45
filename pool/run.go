package pool

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/aetomala/worklease/internal/pause"
)

// run is one Run of a pool. Its goroutine decides whose turn it is. Each turn has a goroutine of its own,
// and a slot that waits has none, unless the store tells what becomes free: then one listens for it.
type run struct {
	pool   *Pool
	ctx    context.Context
	stop   context.CancelCauseFunc
	slots  []*slot // in the order of the work IDs
	agenda agenda
	looks  looks
	roused time.Time // when the next slot that is woken may try

	trying int // slots whose turn is on
	left   int // slots that have not ended
	dead   int
	broke  *breakdown // the first

	ended      chan turned
	woken      chan *slot
	answers    chan answer
	background sync.WaitGroup // listeners, and a look
}

// turned is what has come of a turn.
type turned struct {
	slot  *slot
	next  then
	wait  time.Duration
	broke *breakdown // nil: it returned
}

// runSlots returns when every slot has ended. A slot that panics ends the others first.
func (p *Pool) runSlots(ctx context.Context) error {
	r := p.newRun(ctx)
	defer r.close()
	r.watch()
	r.loop()
	if r.broke != nil {
		r.broke.goOn()
	}
	if r.dead == len(r.slots) {
		return ErrAllSlotsDead
	}
	return nil
}

// newRun returns a run in which every slot is idle.
func (p *Pool) newRun(ctx context.Context) *run {
	start, n := time.Now(), len(p.cfg.WorkIDs)
	r := &run{
		pool:    p,
		slots:   make([]*slot, n),
		looks:   newLooks(p.tenure.Lease, start, p.cfg.IdleInterval),
		left:    n,
		ended:   make(chan turned),
		woken:   make(chan *slot),
		answers: make(chan answer, 1),
	}
	r.ctx, r.stop = context.WithCancelCause(ctx)
	for i, pacing := range pacings(start, n, p.cfg.IdleInterval) {
		s := &slot{pool: p, workID: p.cfg.WorkIDs[i], active: &p.active[i], pacing: pacing, idle: true}
		r.slots[i] = s
		if r.looks.free == nil {
			r.agenda.put(s, start.Add(pacing.first))
		}
	}
	return r
}

// watch has every slot told when its work ID becomes free, if the store does that.
func (r *run) watch() {
	for _, s := range r.slots {
		sleep, stop, told := pause.Watch(r.pool.tenure.Lease, s.workID)
		if s.stop = sync.OnceFunc(stop); told {
			s.sleep = sleep
			r.listen(s)
		}
	}
}

// close ends all that goes on beside the turns, also if watch has panicked half-way.
func (r *run) close() {
	r.stop(nil)
	r.background.Wait()
	for _, s := range r.slots {
		if s.stop != nil {
			s.stop()
		}
	}
}

func (r *run) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for r.left > 0 && r.ctx.Err() == nil {
		timer.Reset(r.begin(time.Now()))
		select {
		case <-timer.C:
		case e := <-r.ended:
			r.settle(e)
		case s := <-r.woken:
			r.rouse(s, time.Now())
		case a := <-r.answers:
			r.heed(a)
		case <-r.ctx.Done():
		}
	}
	for r.trying > 0 {
		r.settle(<-r.ended)
	}
}

// begin begins what is due, and returns how long it is until something else is.
func (r *run) begin(now time.Time) (wait time.Duration) {
	if r.looks.overdue(now) {
		r.giveUp(now)
	}
	if r.looks.due(now) {
		r.look(now)
	}
	for s := r.agenda.first(); s != nil && !s.due.After(now); s = r.agenda.first() {
		r.start(s)
	}
	wait = longestInterval
	if s := r.agenda.first(); s != nil {
		wait = s.due.Sub(now)
	}
	if r.looks.pending() {
		wait = min(wait, r.looks.next.Sub(now))
	}
	if r.looks.pends && !r.looks.deadline.IsZero() {
		wait = min(wait, r.looks.deadline.Sub(now))
	}
	return wait
}

// start begins the turn of s.
func (r *run) start(s *slot) {
	r.agenda.remove(s)
	s.idle, s.found = false, false
	s.deaf()
	r.trying++
	go func() {
		e, returned := turned{slot: s}, false
		defer func() {
			if !returned {
				e.broke = &breakdown{workID: s.workID, value: recover(), stack: debug.Stack()}
			}
			r.ended <- e
		}()
		e.next, e.wait = s.turn(r.ctx)
		returned = true
	}()
}

// settle has a slot wait for what comes after a turn.
func (r *run) settle(e turned) {
	r.trying--
	s, now := e.slot, time.Now()
	switch {
	case e.broke != nil:
		if r.broke == nil {
			r.broke = e.broke
			r.stop(fmt.Errorf("pool: the slot of %q broke down", s.workID))
		}
		r.end(s)
	case e.next == goesOn:
		r.agenda.put(s, now.Add(e.wait))
	case e.next == idles:
		s.idle, s.since = true, now
		r.looks.resume(now)
		if !r.looks.answered {
			r.agenda.put(s, now.Add(s.pacing.wait(now)))
		}
		r.listen(s)
	case e.next == dies:
		r.dead++
		r.end(s)
	default:
		r.end(s)
	}
}

// end has no more turns for s.
func (r *run) end(s *slot) {
	r.left--
	s.stop()
}

// rouse has a slot that was woken try: at once, unless others were woken just before. A store that could not tell
// for a while wakes everyone. Then a look tells whose attempt is worth making, and until it does, or if
// it cannot, they are made one by one.
func (r *run) rouse(s *slot, now time.Time) {
	if !s.idle {
		return
	}
	s.woken = now
	r.listen(s) // a look that began before the next wake-up must not undo that
	at := latest(now, r.roused)
	if at.After(now) {
		r.looks.hurry(now)
	}
	if s.place > 0 && !s.due.After(at) {
		return
	}
	r.agenda.put(s, at)
	r.roused = at.Add(firstGap)
}

// listen has s woken when its work ID becomes free, where that is told.
func (r *run) listen(s *slot) {
	if s.sleep == nil {
		return
	}
	s.deaf()
	var ctx context.Context
	ctx, s.deafen = context.WithCancel(r.ctx)
	r.background.Go(func() {
		if s.sleep(ctx, longestInterval) != nil {
			return
		}
		select {
		case r.woken <- s:
		case <-ctx.Done():
		}
	})
}
