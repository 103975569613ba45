package worklease

import (
	"errors"
	"sync"
	"time"
)

// instant is one look at the local clocks: at measures by its monotonic reading, wall by the wall
// clock alone. The two part when the machine is suspended: only the wall clock goes on.
type instant struct{ at, wall time.Time }

func localNow() instant {
	t := time.Now()
	return instant{at: t, wall: t.Round(0)}
}

// since returns how much time has passed, by the clock that says more.
func (i instant) since(earlier instant) time.Duration {
	return max(0, i.at.Sub(earlier.at), i.wall.Sub(earlier.wall))
}

// window is the time for which a holder can be sure of its lease without asking: a TTL from the local
// start of the last call that succeeded. The store counted the same TTL from a later moment, so the
// window closes before the lease does, whatever the offset between the two clocks.
type window struct {
	opened instant
	ttl    time.Duration
}

// remaining returns how long w stays open, seen from now; it is closed at zero and below.
func (w window) remaining(now instant) time.Duration { return w.ttl - now.since(w.opened) }

// deadline returns when w closes, as seen from now. It is the same for every now, unless the clocks have
// parted by more than two readings of them differ anyway.
func (w window) deadline(now instant) time.Time {
	deadline := w.opened.at.Add(w.ttl)
	if asleep := now.wall.Sub(w.opened.wall) - now.at.Sub(w.opened.at); asleep > time.Millisecond {
		deadline = deadline.Add(-asleep)
	}
	return deadline
}

// hold is what is known here of one tenure's lease. All copies of a token share it, so that a
// success, or the news that the lease is lost, counts whoever made the call.
type hold struct {
	now func() instant

	mu       sync.Mutex // unlocked by unlock; also guards the state of the renewals
	window   window
	ttl      time.Duration // of the windows to come
	lost     error         // why the window closed before its time; nil if it did not
	losses   int           // how often lost was set
	leaving  int           // how many Releases and Forgets are under way
	doubt    bool          // one came back without a verdict: it may have come through, or may yet
	renewals map[*renewal]struct{}
	finished []*renewal // whose contexts end when mu is unlocked
}

// newHold is what is known after an Acquire that began at start.
func newHold(now func() instant, start instant, ttl time.Duration) *hold {
	return &hold{now: now, window: window{opened: start, ttl: ttl}, ttl: ttl}
}

// unlock also ends the contexts of the renewals that were finished. With mu locked it would be too
// early: ending a context calls methods of its parent, which are the caller's code.
func (h *hold) unlock() {
	finished := h.finished
	h.finished = nil
	h.mu.Unlock()
	for _, r := range finished {
		r.cancel(r.cause)
	}
}

// begin is called before a call that gives the lease a time of ttl, for what extend is to be told. If
// the token is used through several Lease values, the shortest of their TTLs counts from then on: no
// order is known in which their calls reach the store.
func (h *hold) begin(start instant, ttl time.Duration) (losses int) {
	h.mu.Lock()
	defer h.unlock()
	if ttl < h.ttl {
		h.ttl = ttl
		h.window.ttl = min(h.window.ttl, start.since(h.window.opened)+ttl)
		for r := range h.renewals {
			r.arm(h.now())
		}
	}
	return h.losses
}

// extend opens the window anew from start. A call that began before the present window opened, or
// before the lease was lost, says nothing new.
func (h *hold) extend(start instant, losses int) {
	h.mu.Lock()
	defer h.unlock()
	if losses != h.losses || start.at.Before(h.window.opened.at) {
		return
	}
	h.window, h.lost = window{opened: start, ttl: h.ttl}, nil
}

// lose closes the window and ends every renewal, at once. Only a call that begins later can open it
// again.
func (h *hold) lose(cause error) {
	h.mu.Lock()
	defer h.unlock()
	h.losing(cause)
}

// lapse is lose for a call begun at start that found the lease lapsed. If one that began later has
// succeeded since, that has revived it.
func (h *hold) lapse(start instant, cause error) {
	h.mu.Lock()
	defer h.unlock()
	if !start.at.Before(h.window.opened.at) {
		h.losing(cause)
	}
}

func (h *hold) losing(cause error) {
	h.lost = cause
	h.losses++
	for r := range h.renewals {
		r.finish(cause)
	}
}

// leave is called before a call that gives the lease up: from its beginning the store may end the lease
// at any moment.
func (h *hold) leave() {
	h.mu.Lock()
	defer h.unlock()
	h.leaving++
}

// left is called when the call has come back. Without a verdict of the store it may still be on its way,
// and overtake any later call: no success is reason to rely on the lease again.
func (h *hold) left(err error) {
	h.mu.Lock()
	defer h.unlock()
	h.leaving--
	if err != nil && !errors.Is(err, ErrFenced) && !errors.Is(err, ErrLeaseExpired) {
		h.doubt = true
	}
}

// certain reports whether the holder may rely on the window. Called with mu locked.
func (h *hold) certain() bool { return h.leaving == 0 && !h.doubt }

// remaining returns how long the window stays open. Called with mu locked.
func (h *hold) remaining(now instant) time.Duration {
	if h.lost != nil {
		return 0
	}
	return h.window.remaining(now)
}
