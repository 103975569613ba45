package worklease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/ident"
	"github.com/aetomala/worklease/internal/pause"
)

const (
	// lookInterval is how often a store is asked which of the work IDs that are waited for are free, and
	// failedLook how long it is left alone when it did not answer.
	lookInterval = 100 * time.Millisecond
	failedLook   = 2 * time.Second
	// maxLook is how many work IDs one call asks for.
	maxLook = 10_000
)

// waiting is where all who wait on one Lease learn that it is worth trying: from a store that tells what
// becomes free, and from looks that they share. Neither spares a waiter its poll, should they fail.
type waiting struct {
	lease  *lease
	waker  backend.Waker  // nil: the store tells nobody
	looker backend.Looker // nil: the store cannot be asked for many

	mu      sync.Mutex
	queues  map[string]*queue
	seekers int
	looks   *looks // while there are seekers
}

// queue is who waits for one work ID. Its channels are shared by all of them: of a value in either, one
// knows, and the next value is for another.
type queue struct {
	waiting *waiting
	workID  string
	woken   <-chan struct{} // of the store
	stop    func()          // ends woken
	turn    chan struct{}   // of a look, or of one who was told in vain

	// Guarded by waiting.mu.
	members int
	seekers int       // those of the members for whom looks are made
	looked  time.Time // when the last look began that was for workID too
}

// join makes known that somebody is about to wait for workID, before the attempt after which it will: then
// nothing that comes later is missed. With seeks, looks are made until it leaves. The queue is nil, and
// works, if there is nothing to learn.
func (w *waiting) join(workID string, seeks bool) *queue {
	seeks = seeks && w.looker != nil
	if w.waker == nil && !seeks {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queues[workID]
	if q == nil {
		q = &queue{waiting: w, workID: workID, stop: func() {}, turn: make(chan struct{}, 1)}
		if w.waker != nil {
			q.woken, q.stop = w.waker.Wake(workID)
		}
		if w.queues == nil {
			w.queues = make(map[string]*queue)
		}
		w.queues[workID] = q
	}
	q.members++
	if seeks {
		q.seekers++
		if w.seekers++; w.seekers == 1 {
			w.looks = w.startLooks()
		}
	}
	return q
}

// leave undoes a join with the same seeks.
func (q *queue) leave(seeks bool) {
	if q == nil {
		return
	}
	w := q.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	if seeks && w.looker != nil {
		q.seekers--
		if w.seekers--; w.seekers == 0 {
			w.looks.end()
			w.looks = nil
		}
	}
	if q.members--; q.members == 0 {
		q.stop()
		delete(w.queues, q.workID)
	}
}

// pass lets another know what one was told and could not make use of.
func (q *queue) pass() {
	select {
	case q.turn <- struct{}{}:
	default: // there is a turn to be had already
	}
}

// sleep waits for d, or until it is this one's turn to try. If ctx ends first it returns ctx.Err().
func (q *queue) sleep(ctx context.Context, d time.Duration) (told bool, err error) {
	if q == nil {
		return false, pause.Sleep(ctx, d)
	}
	if err := ctx.Err(); err != nil || d <= 0 { // the latter as in pause.Sleep
		return false, err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-q.woken:
		return true, nil
	case <-q.turn:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// poll waits until an attempt is due: it is this one's turn, or nothing has told for an interval, neither the
// attempt before nor a look, how things are. A look that finds workID free gives a turn to one, and those who
// got none may go on waiting: should that one not come forward, the next look gives another.
func (q *queue) poll(ctx context.Context, interval time.Duration) (told bool, err error) {
	asked := time.Now()
	for {
		told, err = q.sleep(ctx, time.Until(asked)+pause.Jitter(interval, pollJitter))
		if told || err != nil || !q.lookedAfter(&asked) {
			return told, err
		}
	}
}

// lookedAfter reports whether a look began later than asked, and sets asked to the time of the last.
func (q *queue) lookedAfter(asked *time.Time) bool {
	if q == nil {
		return false
	}
	q.waiting.mu.Lock()
	defer q.waiting.mu.Unlock()
	if !q.looked.After(*asked) {
		return false
	}
	*asked = q.looked
	return true
}

// Watch is for those who pause between attempts of their own. pause waits for d, or until workID may have
// become free, which is told to one of those on this Lease; if ctx ends first it returns ctx.Err(). stop,
// which is called once, ends it. Both are nil if the store tells nobody, as one that could, but has not been told
// to. It is no method of Lease: packages leader and pool ask for it.
func (l *lease) Watch(workID string) (pause func(ctx context.Context, d time.Duration) error, stop func()) {
	if l.waiting.waker == nil {
		return nil, nil
	}
	q := l.waiting.join(workID, false)
	if q.woken == nil {
		q.leave(false)
		return nil, nil
	}
	return func(ctx context.Context, d time.Duration) error {
		_, err := q.sleep(ctx, d)
		return err
	}, func() { q.leave(false) }
}

// Free returns those of workIDs for which an Acquire is worth trying, as [backend.Looker] does, with one call for
// every 10,000. What Acquire would refuse for what it consists of, without asking the store, is among them: it
// says what is wrong. On a store that cannot tell it fails with [errors.ErrUnsupported]. It is no method of
// Lease: package pool asks for it.
func (l *lease) Free(ctx context.Context, workIDs []string) ([]string, error) {
	if l.waiting.looker == nil {
		return nil, errors.ErrUnsupported
	}
	var free []string
	askable := make([]string, 0, len(workIDs))
	for _, id := range workIDs {
		if ident.Check(id) == nil {
			askable = append(askable, id)
		} else {
			free = append(free, id)
		}
	}
	for ids := range slices.Chunk(askable, maxLook) {
		found, err := l.waiting.ask(ctx, ids)
		if err != nil {
			return nil, err
		}
		free = append(free, found...)
	}
	return free, nil
}

// looks are those of the time in which somebody waits. A timer makes them, one after the other.
type looks struct {
	waiting *waiting
	ctx     context.Context
	cancel  context.CancelFunc
	timer   *time.Timer // guarded by waiting.mu
}

// startLooks is called with mu locked.
func (w *waiting) startLooks() *looks {
	s := &looks{waiting: w}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.timer = time.AfterFunc(pause.Jitter(lookInterval, pollJitter), s.look)
	return s
}

func (s *looks) end() {
	s.timer.Stop()
	s.cancel()
}

// look asks once for all, and tells one of those who wait for each that is free. What goes wrong is nobody's
// to hear of: whoever is told nothing polls, and gets the error of its own attempt.
func (s *looks) look() {
	interval := lookInterval
	for ids := range slices.Chunk(s.waiting.sought(), maxLook) {
		began := time.Now()
		free, err := s.waiting.ask(s.ctx, ids)
		if errors.Is(err, errors.ErrUnsupported) {
			return // a wrapper of a store that is no Looker; the next who waits alone asks again
		}
		if err != nil {
			interval = failedLook
			break
		}
		s.waiting.tell(ids, free, began)
	}
	s.waiting.mu.Lock()
	defer s.waiting.mu.Unlock()
	if s.ctx.Err() == nil {
		s.timer.Reset(pause.Jitter(interval, pollJitter))
	}
}

// ask looks for up to maxLook work IDs.
func (w *waiting) ask(ctx context.Context, ids []string) (free []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.lease.ttl)
	defer cancel()
	defer survive(&err, func(error) {})()
	free, err = w.looker.Free(ctx, ids)
	return free, err
}

// sought returns what looks are made for.
func (w *waiting) sought() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]string, 0, len(w.queues))
	for id, q := range w.queues {
		if q.seekers > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// tell passes on what a look found that began at began.
func (w *waiting) tell(asked, free []string, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range asked {
		if q := w.queues[id]; q != nil {
			q.looked = began
		}
	}
	for _, id := range free {
		if q := w.queues[id]; q != nil {
			q.pass()
		}
	}
}
