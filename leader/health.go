package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aetomala/worklease"
)

var (
	// ErrPastWindow is what a [Health] says of a function that still runs although its lease is lost.
	ErrPastWindow = errors.New("worklease: leader: the function runs past its lease window")
	// ErrStuck is what a [Health] says of an election that does not come forward.
	ErrStuck = errors.New("worklease: leader: the election is stuck")
)

// Health tells whether a process does as leader or standby what it should. It is for one [Run], or one
// loop around [Elect], at a time, which gets it in its Config. The zero value is ready to use; a Health
// is safe for concurrent use and must not be copied after first use.
type Health struct {
	mu     sync.Mutex
	doing  string
	due    time.Time       // when doing should be over; zero: there is no such time
	term   context.Context // of the OnElected or the function that runs; nil: neither does
	window bool            // term has a lease window
	lostAt time.Time       // when the term was lost; zero: it was not
}

// Check returns nil, or what a restart of the process would mend:
//
//   - [ErrPastWindow]: OnElected or the function has not returned, although the lease has been lost for
//     tolerance. This process may be a second leader.
//   - [ErrStuck]: an attempt to acquire, a callback or the release has not ended for more than tolerance,
//     or a pause for as much beyond its time. An OnElected that hangs keeps everybody from leading.
//
// It is no fault of health to be standby, to find the store down, or to take long over the end of a
// term whose lease is still held, and nothing is known of a wait under [worklease.WithWaitForLease].
// Before the first election, and once Run or Elect has returned, all is well, as it is for a nil Health.
//
// A store that has gone silent keeps an attempt waiting for the TTL and the release for CleanupTimeout, or
// for as long as its calls outlast their context: tolerance had better be longer than all three. A negative
// one is none.
func (h *Health) Check(tolerance time.Duration) error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now, tolerance := time.Now(), max(tolerance, 0)
	if h.term != nil {
		if _, ok := worklease.LeaseWindow(h.term); h.window && !ok && h.lostAt.IsZero() {
			h.lostAt = now // the news are still on their way, as after a suspend
		}
		if late := now.Sub(h.lostAt); !h.lostAt.IsZero() && late >= tolerance {
			return fmt.Errorf("%w: lost %v ago", ErrPastWindow, late)
		}
	}
	if late := now.Sub(h.due); !h.due.IsZero() && late > tolerance {
		return fmt.Errorf("%w: %s, due %v ago", ErrStuck, h.doing, late)
	}
	return nil
}

// ask begins an attempt to acquire the lease.
func (h *Health) ask(waits bool) {
	due := time.Now()
	if waits {
		due = time.Time{}
	}
	h.set("acquiring the lease", due)
}

// elect says that OnElected is about to be called.
func (h *Health) elect(term context.Context) { h.hold(term, "calling OnElected", time.Now()) }

// lead says that the function is about to be called. It may take as long as it wants to.
func (h *Health) lead(term context.Context) { h.hold(term, "", time.Time{}) }

// hold says what is done under the lease. That it is lost may be known already: lostAt stays.
func (h *Health) hold(term context.Context, doing string, due time.Time) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doing, h.due, h.term = doing, due, term
	_, h.window = worklease.LeaseWindow(term) // a Lease of another make has none
}

// lose says that the lease of the term is lost.
func (h *Health) lose() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lostAt.IsZero() {
		h.lostAt = time.Now()
	}
}

// leave says that OnElected or the function has returned.
func (h *Health) leave() { h.set("ending the term", time.Now()) }

// wait pauses, by a sleep that lasts no longer than d.
func (h *Health) wait(ctx context.Context, d time.Duration, sleep func(context.Context, time.Duration) error) error {
	h.set("pausing", time.Now().Add(max(d, 0)))
	if d <= 0 {
		return ctx.Err()
	}
	return sleep(ctx, d)
}

// rest says that there is nothing more to be done.
func (h *Health) rest() { h.set("", time.Time{}) }

func (h *Health) set(doing string, due time.Time) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doing, h.due, h.term, h.lostAt = doing, due, nil, time.Time{}
}
