package pool

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/pause"
)

// lookTimeout is how long a look may take. A store that needs longer is in trouble, and would be more so if
// every slot asked it, which is what comes then: it is no shorter for a short interval.
const lookTimeout = 2 * time.Second

// gather is how long a look waits for more slots to be woken, if there are two.
const gather = 10 * time.Millisecond

// looks tell which work IDs of idle slots are free. The first is made as Run begins, and then one in each
// idle interval, at a time that is drawn once, lest pools that start together keep step. One that finds
// no idle slot to look for is left out, as all that would follow are, until there is one.
type looks struct {
	free     func(ctx context.Context, workIDs []string) ([]string, error) // nil: nobody can tell
	from     time.Time                                                     // an instant of the regular ones
	interval time.Duration
	next     time.Time
	began    time.Time // when the last one was
	crowd    bool      // many have been woken since: the next one is made soon
	pends    bool      // one is on its way
	deadline time.Time // when that is given up, and zero when it has been
	answered bool      // the last one was: idle slots rely on the next
	rests    bool      // the last one that was due was left out: nobody was idle, and nobody has been since
}

// answer is what has come of a look.
type answer struct {
	began time.Time
	free  []string
	err   error
}

var (
	errNoAnswer = errors.New("pool: the look did not return") // its goroutine was ended
	errTooLate  = errors.New("pool: the look had been given up")
)

func newLooks(lease worklease.Lease, start time.Time, interval time.Duration) looks {
	return looks{
		free:     pause.Looks(lease),
		from:     start.Add(-rand.N(interval)),
		interval: interval,
		next:     start,
	}
}

// pending says that next is when a look is due.
func (l *looks) pending() bool { return l.free != nil && !l.pends && !l.rests }

func (l *looks) due(now time.Time) bool { return l.pending() && !l.next.After(now) }

// overdue says that the look on its way is to be given up.
func (l *looks) overdue(now time.Time) bool {
	return l.pends && !l.deadline.IsZero() && !l.deadline.After(now)
}

// schedule sets next to the first regular instant after now, or to a tenth of the interval after the last one.
func (l *looks) schedule(now time.Time) {
	l.next = now.Add(l.interval - now.Sub(l.from)%l.interval)
	if soon := latest(now.Add(gather), l.began.Add(l.interval/10)); l.crowd && soon.Before(l.next) {
		l.next = soon
	}
}

// hurry has one made soon, in place of the attempts of many.
func (l *looks) hurry(now time.Time) {
	if l.crowd {
		return
	}
	l.crowd = true
	if l.pending() {
		l.schedule(now)
	}
}

// resume is called when a slot becomes idle.
func (l *looks) resume(now time.Time) {
	if l.rests {
		l.rests = false
		l.schedule(now)
	}
}

// look asks for all idle slots, but for those that are about to try.
func (r *run) look(now time.Time) {
	var ids []string
	for _, s := range r.slots {
		if s.idle && !s.found {
			ids = append(ids, s.workID)
		}
	}
	if len(ids) == 0 {
		r.looks.rests = true
		return
	}
	r.looks.pends, r.looks.deadline = true, now.Add(lookTimeout)
	r.looks.began, r.looks.crowd = now, false
	free := r.looks.free
	r.background.Go(func() {
		a := answer{began: now, err: errNoAnswer}
		defer func() { r.answers <- a }()
		ctx, cancel := context.WithTimeout(r.ctx, lookTimeout)
		defer cancel()
		a.free, a.err = free(ctx, ids)
	})
}

// giveUp has slots do without a look that does not return even though its context has ended, lest one call
// that hangs stop them all. There is no other look before it returns.
func (r *run) giveUp(now time.Time) {
	relied := r.looks.answered
	r.looks.deadline, r.looks.answered = time.Time{}, false
	r.goAlone(now, relied)
}

// heed has slots do what a look says. Its error is nobody's to hear of: without an answer every slot makes
// attempts of its own, and hears what is wrong.
func (r *run) heed(a answer) {
	now, relied := time.Now(), r.looks.answered
	if r.looks.deadline.IsZero() && a.err == nil {
		a.err = errTooLate
	}
	r.looks.pends, r.looks.answered = false, a.err == nil
	r.looks.schedule(now)
	if errors.Is(a.err, errors.ErrUnsupported) {
		r.looks.free = nil
	}
	if a.err != nil {
		r.goAlone(now, relied)
		return
	}
	for _, s := range r.slots {
		if s.idle && !s.found && !s.woken.After(a.began) { // what it was told since then is newer
			r.agenda.remove(s)
		}
	}
	r.roused = now
	room := period(r.looks.interval)
	if relied {
		// What became free after the look before is tried within 1.2 intervals.
		room = max(r.looks.interval/5-now.Sub(a.began), r.looks.interval/10)
	}
	r.tryAll(a.free, now, room)
}

// tryAll has the slots of free work IDs try within room, one after the other, in random order: processes that
// look at the same time each get some of the work.
func (r *run) tryAll(free []string, now time.Time, room time.Duration) {
	if len(free) == 0 {
		return
	}
	gap := min(room/time.Duration(len(free)), firstGap)
	for place, i := range rand.Perm(len(free)) {
		n, ok := slices.BinarySearch(r.pool.cfg.WorkIDs, free[i])
		if !ok || !r.slots[n].idle || r.slots[n].found {
			continue
		}
		s := r.slots[n]
		s.found = true
		r.agenda.put(s, latest(now.Add(time.Duration(place)*gap), s.since.Add(r.looks.interval)))
	}
}

// goAlone has idle slots that relied on looks try at times of their own, each in its place. If there has been
// no look to rely on, these are the first attempts.
func (r *run) goAlone(now time.Time, relied bool) {
	for _, s := range r.slots {
		if !s.idle || s.place > 0 {
			continue
		}
		var wait time.Duration
		if relied {
			s.pacing.displaced()
			wait = s.pacing.until(now)
		} else {
			s.pacing.start = now // as if there had been no look to wait for
			wait = s.pacing.first
		}
		r.agenda.put(s, latest(now.Add(wait), s.since.Add(r.looks.interval)))
	}
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
