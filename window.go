package worklease

import (
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

// hold is what is known here of one tenure's lease. All copies of a token share it, so that a
// success, or the news that the lease is lost, counts whoever made the call.
type hold struct {
	now func() instant

	mu       sync.Mutex // also guards the state of the renewals
	window   window
	ttl      time.Duration // of the windows to come
	lost     error         // why the window closed before its time; nil if it did not
	leaving  bool          // a Release or Forget is under way
	doubt    instant       // when one last failed: it may have come through, or may yet
	renewals map[*renewal]struct{}
}

// begin is called before a call that gives the lease a time of ttl. If the token is used through
// several Lease values, the shortest of their TTLs counts from then on: no order is known in which
// their calls reach the store.
func (h *hold) begin(start instant, ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ttl >= h.ttl {
		return
	}
	h.ttl = ttl
	h.window.ttl = min(h.window.ttl, start.since(h.window.opened)+ttl)
	for r := range h.renewals {
		r.arm(h.now())
	}
}

// extend opens the window anew from start. A call that began before the present window opened, or
// before the lease was lost, says nothing new.
func (h *hold) extend(start instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if start.at.Before(h.window.opened.at) {
		return
	}
	h.window, h.lost = window{opened: start, ttl: h.ttl}, nil
}

// lose closes the window and ends every renewal, at once. Only a call that begins later can open it
// again.
func (h *hold) lose(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.window.opened, h.lost = h.now(), cause
	for r := range h.renewals {
		r.finish(cause)
	}
}

// leave is called before and after a call that gives the lease up. From its beginning the store may end
// the lease at any moment; if it fails, only the success of a later call is reason to rely on it again.
func (h *hold) leave(underway bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaving = underway
	if !underway {
		h.doubt = h.now()
	}
}

// certain reports whether the holder may rely on the open window. Called with h.mu locked.
func (h *hold) certain() bool {
	return !h.leaving && !h.window.opened.at.Before(h.doubt.at)
}

// newHold is what is known after an Acquire that began at start.
func newHold(now func() instant, start instant, ttl time.Duration) *hold {
	return &hold{now: now, window: window{opened: start, ttl: ttl}, ttl: ttl}
}

// remaining is called with h.mu locked.
func (h *hold) remaining(now instant) time.Duration {
	if h.lost != nil {
		return 0
	}
	return h.window.remaining(now)
}
