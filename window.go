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

func (w window) deadline() time.Time { return w.opened.at.Add(w.ttl) }

// hold is what is known here of one tenure's lease. All copies of a token share it, so that a
// success, or the news that the lease is lost, counts whoever made the call.
type hold struct {
	now func() instant

	mu       sync.Mutex // also guards the state of the renewals
	window   window
	lost     error // why the window closed before its time; nil if it did not
	leaving  bool  // a Release or Forget has begun: nobody is to rely on the lease from here on
	renewals map[*renewal]struct{}
}

// extend opens a window of ttl from start. A call that began before the present window opened, or
// before the lease was lost, says nothing new.
func (h *hold) extend(start instant, ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if start.at.Before(h.window.opened.at) {
		return
	}
	// Through a second Lease value the tenure may have been given a shorter time.
	h.window = window{opened: start, ttl: min(ttl, h.window.ttl)}
	h.lost = nil
}

// lose closes the window and ends every renewal, at once. Only a call that begins later can open it
// again, and with that it proves that no Release came through.
func (h *hold) lose(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.window.opened, h.lost, h.leaving = h.now(), cause, false
	for r := range h.renewals {
		r.finish(cause)
	}
}

// leave makes LeaseWindow vouch for the lease no longer: the store may end it at any moment now, also
// if the caller is told of an error.
func (h *hold) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaving = true
}

// remaining is called with h.mu locked.
func (h *hold) remaining(now instant) time.Duration {
	if h.lost != nil {
		return 0
	}
	return h.window.remaining(now)
}
