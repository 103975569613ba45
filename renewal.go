package worklease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/aetomala/worklease/internal/pause"
)

const (
	// A wait is drawn from [lowestWait*d, d], so that leases taken together do not renew together.
	lowestWait = 0.85
	// maxUnanswered bounds what one renewal can have in flight on a store that does not answer.
	maxUnanswered = 3
)

var (
	errGivenUp = fmt.Errorf("%w: the lease was given up", ErrLeaseWindowExhausted)
	errLapsed  = fmt.Errorf("%w: %w", ErrLeaseWindowExhausted, ErrLeaseExpired)
)

// renewal keeps one lease alive, for one StartRenewal. It has no goroutine of its own: a timer wakes
// it for whatever is due next, and an attempt runs in the goroutine of the wake that began it, so that
// a lease at rest costs a timer, and a call that hangs holds up nothing but itself.
type renewal struct {
	lease  *lease
	token  Token
	hold   *hold
	opts   renewalOptions
	ctx    context.Context // renewCtx
	cancel context.CancelCauseFunc

	// Guarded by hold.mu.
	timer      *time.Timer
	stopped    bool
	done       bool // nothing is left to do; ctx ends with cause, if it has not ended yet
	cause      error
	wait       time.Duration // from the opening of the window until a renewal is due
	attempts   int           // made in the renewal under way; zero while none is
	awaited    *attempt      // the attempt that has time left to answer; nil if none has
	unanswered []*attempt    // the calls in flight, oldest first: awaited, and those given up
	failedAt   instant       // when the last attempt failed or was given up
	retry      time.Duration // from failedAt until the next attempt
	backoff    time.Duration // for the failure after the last one
	lastErr    error         // what the last attempt failed with
}

// attempt is one call to the store.
type attempt struct {
	number int
	ctx    context.Context
	cancel context.CancelFunc
	began  instant
	limit  time.Duration // from began until it is given up
}

type renewalKey struct{}

func (l *lease) StartRenewal(ctx context.Context, token Token, opts ...RenewalOption) (context.Context, func()) {
	if ctx == nil {
		return ended(context.Background(), failed("renew", token.record, errNilContext))
	}
	if token.hold == nil {
		return ended(ctx, ErrFenced)
	}
	if l.inTransaction(ctx) {
		return ended(ctx, failed("renew", token.record, errors.New("background renewal inside a transaction")))
	}
	r := &renewal{lease: l, token: token, hold: token.hold, opts: renewalOptionsFrom(opts, l.ttl)}
	r.ctx, r.cancel = context.WithCancelCause(context.WithValue(ctx, renewalKey{}, r))
	r.start()
	return r.ctx, r.stop
}

// ended is what StartRenewal returns when there is nothing to renew.
func ended(parent context.Context, cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	cancel(cause)
	return ctx, func() {}
}

// LeaseWindow returns when the window of the lease closes that ctx works under: ctx is the renewCtx of
// a [Lease.StartRenewal], or derived from one. The deadline is of the local clocks, with a monotonic
// reading, and moves with every success. ok is false for any other ctx, once renewCtx has ended, and
// from the moment that Release or Forget is called, also if that fails: unless the store refused it, it may
// be carried out yet.
func LeaseWindow(ctx context.Context) (deadline time.Time, ok bool) {
	if ctx == nil {
		return time.Time{}, false
	}
	r, _ := ctx.Value(renewalKey{}).(*renewal)
	if r == nil {
		return time.Time{}, false
	}
	h := r.hold
	h.mu.Lock()
	defer h.unlock()
	now := h.now()
	if !r.alive(now) || !h.certain() {
		return time.Time{}, false
	}
	return h.window.deadline(now), true
}

func (r *renewal) start() {
	h := r.hold
	h.mu.Lock()
	defer h.unlock()
	if h.renewals == nil {
		h.renewals = make(map[*renewal]struct{})
	}
	h.renewals[r] = struct{}{}
	r.timer = time.AfterFunc(math.MaxInt64, r.wake)
	r.settle(rand.Float64())
	r.arm(h.now())
}

func (r *renewal) stop() {
	h := r.hold
	h.mu.Lock()
	defer h.unlock()
	r.stopped = true // the timer stays: renewCtx is still to end with the window
	r.cancelAttempts()
}

// wake does what has become due. It may be called too early, and more than once.
func (r *renewal) wake() {
	a := r.next()
	switch {
	case a == nil:
	case r.lease.batch.works():
		r.lease.batch.add(r, a, gathering(min(r.opts.interval, 2*a.limit)))
	default:
		r.try(a)
	}
}

// next gives up the attempt that took too long, and returns the one that is to be made now, if any. An
// attempt that is given up stays in flight, since an answer that is only slow is as good as any; it is
// cancelled when another needs its place.
func (r *renewal) next() *attempt {
	h := r.hold
	h.mu.Lock()
	defer h.unlock()
	now := h.now()
	if !r.alive(now) {
		return nil
	}
	defer r.arm(now)
	if r.awaited == nil && r.attempts > 0 && h.window.opened.at.After(r.failedAt.at) {
		r.settle(rand.Float64()) // another call has moved the window since
	}
	if r.awaited != nil && r.due(now) <= 0 {
		r.awaited = nil
		r.failedAt, r.retry = now, 0
		if len(r.unanswered) == maxUnanswered {
			r.cancelOldest()
		}
	}
	if r.awaited != nil || r.due(now) > 0 {
		return nil
	}
	r.attempts++
	a := &attempt{number: r.attempts, began: now, limit: max(h.remaining(now)/3, r.shortest())}
	a.ctx, a.cancel = context.WithCancel(r.ctx)
	r.awaited = a
	r.unanswered = append(r.unanswered, a)
	return a
}

// shortest keeps the attempts from crowding together as the window closes.
func (r *renewal) shortest() time.Duration { return min(r.opts.initial, r.lease.ttl/30) }

// try makes an attempt. A panic of the store or of an observer cannot reach anybody from here; it
// takes the lease's context with it instead, so that the work does not go on unwatched.
func (r *renewal) try(a *attempt) {
	var err error
	defer func() { r.answer(a, err, rand.Float64()) }()
	defer survive(&err, r.hold.lose)()
	err = r.lease.renew(a.ctx, r.token, a.number)
}

// survive returns what is to be deferred around code of the caller's that runs in the background. If that
// does not return, it makes an error of it and calls lose with it.
func survive(err *error, lose func(error)) func() {
	exited := fmt.Errorf("%w: background renewal exited its goroutine", ErrLeaseWindowExhausted)
	*err = exited
	return func() {
		switch p := recover(); {
		case p != nil:
			*err = fmt.Errorf("%w: background renewal panicked: %v\n%s", ErrLeaseWindowExhausted, p, debug.Stack())
		case *err != exited:
			return
		}
		lose(*err)
	}
}

// answer takes in how an attempt ended. What it says of the lease, the call itself has drawn already. place
// is for settle, should it have been a success.
func (r *renewal) answer(a *attempt, err error, place float64) {
	h := r.hold
	h.mu.Lock()
	defer h.unlock()
	cancelled := a.ctx.Err() != nil
	a.cancel()
	r.unanswered = slices.DeleteFunc(r.unanswered, func(other *attempt) bool { return other == a })
	now := h.now()
	switch {
	case err == nil: // also if it was given up
		r.cancelAttempts()
		r.settle(place)
	case cancelled:
		if r.attempts > 0 { // it may say what it was stuck at
			r.lastErr = err
		}
	default:
		r.lastErr = err
		if r.awaited == a {
			r.awaited = nil
			r.failedAt, r.retry = now, pause.Jitter(r.backoff, r.opts.jitter)
			r.backoff = min(r.opts.max-r.backoff, r.backoff) + r.backoff
		}
	}
	r.arm(now)
}

// cancelOldest makes room for one more attempt, if the store obeys its contexts.
func (r *renewal) cancelOldest() {
	for _, a := range r.unanswered {
		if a.ctx.Err() == nil {
			a.cancel()
			return
		}
	}
}

// cancelAttempts gives up all that is in flight: its answers are of no more interest.
func (r *renewal) cancelAttempts() {
	r.awaited = nil
	for _, a := range r.unanswered {
		a.cancel()
	}
}

// settle ends a renewal that succeeded. The wait for the next is place, from 0 to 1, of the way from the
// shortest to the longest there is.
func (r *renewal) settle(place float64) {
	longest := r.opts.interval
	if r.lease.batch.works() {
		longest -= gathering(longest) // which comes on top of it
	}
	lowest := time.Duration(lowestWait * float64(r.opts.interval))
	r.wait = lowest + time.Duration(place*float64(longest-lowest))
	r.attempts, r.backoff, r.lastErr = 0, r.opts.initial, nil
}

// due returns how long it is from now until an attempt is to be begun, or given up.
func (r *renewal) due(now instant) time.Duration {
	switch {
	case r.awaited != nil:
		return r.awaited.limit - now.since(r.awaited.began)
	case r.stopped || len(r.unanswered) == maxUnanswered:
		return math.MaxInt64
	case r.attempts > 0:
		return r.retry - now.since(r.failedAt)
	default:
		return r.wait - now.since(r.hold.window.opened)
	}
}

// arm sets the timer for what is due next, the end of the window at the latest.
func (r *renewal) arm(now instant) {
	if r.alive(now) {
		r.timer.Reset(max(0, min(r.due(now), r.hold.remaining(now))))
	}
}

// alive reports whether the renewal goes on. It ends one whose context has ended, or whose window is
// found closed.
func (r *renewal) alive(now instant) bool {
	switch {
	case r.done: // but whoever found that may not have come to end ctx yet
		r.finish(r.cause)
	case r.ctx.Err() != nil:
		r.finish(nil)
	case r.hold.remaining(now) <= 0:
		r.finish(r.exhausted())
	default:
		return true
	}
	return false
}

// finish leaves nothing behind. Only the first cause counts.
func (r *renewal) finish(cause error) {
	if !r.done {
		r.done, r.cause = true, cause
		r.timer.Stop()
		delete(r.hold.renewals, r)
	}
	r.hold.finished = append(r.hold.finished, r)
}

// exhausted says why the window closed. The last error is there to be read, not to be matched: it may
// be the end of the attempt's own context.
func (r *renewal) exhausted() error {
	switch {
	case r.hold.lost != nil:
		return r.hold.lost
	case r.lastErr != nil:
		return fmt.Errorf("%w: attempt %d: %v", ErrLeaseWindowExhausted, r.attempts, r.lastErr)
	case len(r.unanswered) > 0:
		return fmt.Errorf("%w: renewal attempts without an answer: %d", ErrLeaseWindowExhausted, len(r.unanswered))
	default:
		return ErrLeaseWindowExhausted
	}
}
