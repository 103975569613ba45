package worklease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/ident"
)

const (
	defaultPollInterval = 2 * time.Second
	// pollJitter keeps waiters that began together from asking together.
	pollJitter = 0.2
)

// AcquireOption changes how [Lease.Acquire] goes about it. A nil AcquireOption is ignored.
type AcquireOption func(acquireOptions) acquireOptions

type acquireOptions struct {
	wait bool
	poll time.Duration
}

// WithWaitForLease makes Acquire ask again while somebody holds the lease, until it succeeds, another
// error occurs, or ctx ends: the error then matches ctx.Err() and not [ErrLeaseHeld].
//
// A store that can tell which of many work IDs are free is asked for all who wait on one Lease together,
// about every 100 ms, and one that tells what becomes free is listened to. Of those who wait for one work
// ID on one Lease, one at a time then tries.
func WithWaitForLease() AcquireOption {
	return func(o acquireOptions) acquireOptions {
		o.wait = true
		return o
	}
}

// WithPollInterval sets how long an Acquire that waits pauses between two attempts, unless it is told
// before that the lease is free: each pause is drawn from [d, 1.2d). A store that was asked for all who
// wait need not be asked by each: the pause then begins anew. The default is 2 s, and a d of zero or less
// is ignored.
func WithPollInterval(d time.Duration) AcquireOption {
	return func(o acquireOptions) acquireOptions {
		if d > 0 {
			o.poll = d
		}
		return o
	}
}

// HasWaitForLease reports whether opts contain [WithWaitForLease], for code that must not wait.
func HasWaitForLease(opts []AcquireOption) bool {
	return acquireOptionsFrom(opts).wait
}

func acquireOptionsFrom(opts []AcquireOption) acquireOptions {
	o := acquireOptions{poll: defaultPollInterval}
	for _, opt := range opts {
		if opt != nil {
			o = opt(o)
		}
	}
	return o
}

func (l *lease) Acquire(ctx context.Context, workID string, opts ...AcquireOption) (Token, error) {
	token, _, err := l.acquire(ctx, workID, opts, nil)
	return token, err
}

// AcquireRead is an Acquire and, if that succeeds, a ReadCheckpoint, in one call to the store, which is the
// Duration of both events. On a store that cannot do that it fails with [errors.ErrUnsupported], and
// nothing has happened. It is no method of Lease: package tenure asks for it.
func (l *lease) AcquireRead(ctx context.Context, workID string, opts ...AcquireOption) (Token, Checkpoint, error) {
	var found Checkpoint
	token, took, err := l.acquire(ctx, workID, opts, &found)
	if err != nil {
		return Token{}, Checkpoint{}, err
	}
	if l.observer != nil {
		l.observer.OnReadCheckpoint(ctx, readEvent(token, found, took, nil))
	}
	return token, found, nil
}

// acquire also reads the checkpoint, unless read is nil.
func (l *lease) acquire(ctx context.Context, workID string, opts []AcquireOption, read *Checkpoint) (Token, time.Duration, error) {
	wanted := backend.LeaseRecord{WorkID: workID, HolderID: l.holderID}
	if ctx == nil {
		return Token{}, 0, failed("acquire", wanted, errNilContext)
	}
	if err := ident.Check(workID); err != nil {
		return Token{}, 0, failed("acquire", wanted, fmt.Errorf("the work ID %w", err))
	}
	o := acquireOptionsFrom(opts)
	if !o.wait {
		return l.acquireOnce(ctx, wanted, read)
	}
	return l.acquireWaiting(ctx, wanted, read, o.poll)
}

// acquireWaiting tries until it is not refused any more.
func (l *lease) acquireWaiting(ctx context.Context, wanted backend.LeaseRecord, read *Checkpoint, poll time.Duration) (Token, time.Duration, error) {
	q := l.waiting.join(wanted.WorkID, true)
	defer q.leave(true)
	told := false
	defer func() {
		if told {
			q.pass()
		}
	}()
	for {
		token, took, err := l.acquireOnce(ctx, wanted, read)
		if err == nil {
			told = false
			return token, took, nil
		}
		if !errors.Is(err, ErrLeaseHeld) {
			return token, took, err
		}
		var ended error
		if told, ended = q.poll(ctx, poll); ended != nil {
			// The text says what was waited for; only the end of ctx is there to be matched.
			return Token{}, 0, fmt.Errorf("%v: %w while waiting", err, ended)
		}
	}
}

func (l *lease) acquireOnce(ctx context.Context, wanted backend.LeaseRecord, read *Checkpoint) (Token, time.Duration, error) {
	start := l.now()
	record, err := l.acquireInTime(ctx, wanted, read)
	answered := l.now()
	took := answered.at.Sub(start.at)
	if read != nil && errors.Is(err, errors.ErrUnsupported) {
		return Token{}, 0, failed("acquire and read", wanted, err) // the store was not asked
	}
	granted := Token{record: record, hold: newHold(l.now, start, l.ttl)}
	late := err == nil && granted.hold.window.remaining(answered) <= 0
	if late {
		err = fmt.Errorf("%w: the answer took longer than the TTL of %v", ErrLeaseWindowExhausted, l.ttl)
	}
	token := granted
	if err != nil {
		token, err = Token{}, failed("acquire", wanted, l.explain(err))
	}
	if l.observer != nil {
		l.observer.OnAcquire(ctx, AcquireEvent{WorkID: wanted.WorkID, Token: token, Duration: took, Err: err})
	}
	if err == nil && granted.hold.window.remaining(l.now()) <= 0 { // the observer took its time
		late, token, err = true, Token{}, failed("acquire", wanted, ErrLeaseWindowExhausted)
	}
	if late {
		l.giveBack(ctx, granted)
	}
	return token, took, err
}

// acquireInTime asks the store for no longer than an answer is worth having. A network that went silent would
// keep whoever waits for as long as TCP does, though it be long back.
func (l *lease) acquireInTime(ctx context.Context, wanted backend.LeaseRecord, read *Checkpoint) (backend.LeaseRecord, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, l.ttl, errTooLate)
	defer cancel()
	record, err := l.ask(bounded, wanted, read)
	if errors.Is(err, context.DeadlineExceeded) && context.Cause(bounded) == errTooLate {
		// The deadline is not the caller's, and only to be read.
		return record, fmt.Errorf("%w: no answer within the TTL of %v: %v", ErrLeaseWindowExhausted, l.ttl, err)
	}
	return record, err
}

func (l *lease) ask(ctx context.Context, wanted backend.LeaseRecord, read *Checkpoint) (record backend.LeaseRecord, err error) {
	switch {
	case read == nil:
		return l.backend.Acquire(ctx, wanted.WorkID, wanted.HolderID, l.ttl)
	case l.reader == nil:
		return record, errors.ErrUnsupported
	}
	record, *read, err = l.reader.AcquireRead(ctx, wanted.WorkID, wanted.HolderID, l.ttl)
	return record, err
}

var errTooLate = errors.New("the answer is later than the TTL")

// giveBackTimeout bounds how much longer an Acquire takes whose answer came too late.
const giveBackTimeout = time.Second

// giveBack releases a lease that came too late to be used. The store counted its TTL from a later
// moment, and might keep others out for a while yet; should this fail, it will. The caller has an error
// already, and the observer is told of this one.
func (l *lease) giveBack(ctx context.Context, token Token) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	_ = l.Release(ctx, token, ExitAbandoned)
}

// explain adds what puzzles those who restart a process under the same name.
func (l *lease) explain(err error) error {
	if held, ok := errors.AsType[*HeldError](err); ok && held.HolderID == l.holderID {
		return fmt.Errorf("%w: that is this same holder ID, and a lease is not re-entrant", err)
	}
	return err
}
