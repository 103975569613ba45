package worklease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/ident"
)

// ExitMode says how a holder left its work.
type ExitMode = backend.ExitMode

// The exit modes. A holder declares finished, abandoned or retired; the other two are only read.
const (
	// ExitNone is the zero value: there was no holder before.
	ExitNone = backend.ExitNone
	// ExitFinished says that the work is done for now. It may be run again.
	ExitFinished = backend.ExitFinished
	// ExitAbandoned says that the holder gave up before the work was done.
	ExitAbandoned = backend.ExitAbandoned
	// ExitRetired says that the work is done for good. Unless told otherwise, a sweep deletes such rows
	// only.
	ExitRetired = backend.ExitRetired
	// ExitExpired says that the lease lapsed before its holder said anything.
	ExitExpired = backend.ExitExpired
)

// Checkpoint is the state saved last for a work ID, and how the holder before left.
type Checkpoint = backend.Checkpoint

// Lease takes, keeps and gives back leases on work IDs, all for one holder ID and with one TTL. It is
// safe for concurrent use, and one Lease serves any number of work IDs at a time. Wrappers embed the
// interface, since a minor release may add a method to it.
//
// These rules hold for all methods:
//
//   - ctx bounds the call. If it ends first, the error matches ctx.Err(), and the call may have taken
//     effect in the store.
//   - A nil ctx is an error, and so is a zero [Token], which matches [ErrFenced]. What is refused so
//     reaches neither the store nor an observer.
//   - A token may be used through several Lease values of its holder: its lease has the shortest of
//     their TTLs.
//   - Errors wrap, once, what the store returned. An error that matches none of this package's
//     sentinels is a fault of the store or of the way to it: nothing is known of the lease then.
//   - Time is the store's. Only the lease window, see [Lease.StartRenewal], is measured here.
type Lease interface {
	// Acquire takes the lease on workID for the TTL, and fails with [ErrLeaseHeld] if somebody holds
	// it, this same holder ID included. It makes one attempt unless [WithWaitForLease] is given.
	//
	// workID must be valid UTF-8 without NUL, of 1 to 1,024 bytes. The store is waited for no longer than
	// the TTL in each attempt: without an answer by then the error matches [ErrLeaseWindowExhausted]. So does
	// that of an answer that came later all the same, and the lease is released as abandoned where the store still
	// allows it. If the answer is lost on its way, the lease stays with nobody
	// until its TTL has passed.
	Acquire(ctx context.Context, workID string, opts ...AcquireOption) (Token, error)

	// ReadCheckpoint returns the state saved last and how the previous holder left, also when the
	// lease has lapsed or was released. The state is the caller's to change, and nil if there is none.
	// It fails with [ErrFenced] once another tenure has begun.
	ReadCheckpoint(ctx context.Context, token Token) (Checkpoint, error)

	// Checkpoint saves state and renews the lease in one step. nil and empty both clear what was
	// saved; the slice is not kept. A lease that lapsed and that nobody has claimed since is revived.
	// It fails with [ErrFenced] once another tenure has begun, and with [ErrLeaseExpired] after a
	// Release. Of concurrent calls with one token the last to arrive wins: let one goroutine write.
	Checkpoint(ctx context.Context, token Token, state []byte) error

	// Renew moves the expiry to a TTL from now. It fails with [ErrFenced] once another tenure has
	// begun, and with [ErrLeaseExpired] if the lease has lapsed or was released.
	Renew(ctx context.Context, token Token) error

	// Release records how the holder leaves, [ExitFinished], [ExitAbandoned] or [ExitRetired], and
	// ends the lease, so that the next Acquire succeeds at once. It ends the renewals of the token
	// too, and [LeaseWindow] vouches for the lease no longer from the moment it is called. It fails
	// with [ErrInvalidExitMode] before the store is called, with [ErrFenced] once another tenure has
	// begun, and with [ErrLeaseExpired] if the lease has lapsed or was released already: then nothing
	// is recorded. After any other error it may have been recorded, or may be yet.
	//
	// It is often called when the work's context has ended: use [context.WithoutCancel], and a timeout,
	// or the successor waits for the TTL.
	Release(ctx context.Context, token Token, mode ExitMode) error

	// Forget deletes all that is stored for the work ID: the next holder finds neither state nor a
	// previous exit. It succeeds on a lease that is held, lapsed or released, and fails with
	// [ErrFenced] if another tenure has begun or nothing is stored. It ends the renewals of the token,
	// and LeaseWindow, as Release does.
	Forget(ctx context.Context, token Token) error

	// StartRenewal renews the lease in the background until stopRenewal is called, the lease is lost
	// or ctx ends. Do the work under renewCtx: it ends when the holder can no longer be sure of its
	// lease, and no later.
	//
	// The lease window is the time for which the holder can be sure without asking. It ends a TTL
	// after the local start of the call that acquired, and after each success a TTL after the local
	// start of that call: any successful Renew or Checkpoint moves it, whoever made the call, a failed
	// one never does. It is measured by the monotonic clock, and a wall clock that ran ahead, as after
	// a suspend, closes it too: that is noticed at the next look, which is the next attempt to renew at the
	// latest, or LeaseWindow. The store's clock does not matter.
	//
	// A renewal is due every TTL/2, or as [WithRenewalInterval] says, counted from the start of the
	// call that last moved the window. An attempt without an answer after a third of the time left (but
	// no sooner than 100 ms or TTL/30, whichever is less) is given up and the next is made. It may still
	// answer; but at most three are unanswered at a time, and the oldest is cancelled to make room. After
	// an error the next attempt waits as [WithRenewalBackoff] says.
	//
	// On a store that renews many leases in one call, those of one Lease that fall due close to each other
	// are renewed together. Each is still by itself: its window, its attempts, its events.
	//
	// What ends renewCtx is its [context.Cause]:
	//
	//   - [ErrFenced], at once, when any call with the token says so;
	//   - an error matching both ErrLeaseWindowExhausted and [ErrLeaseExpired], at once, when a call
	//     finds the lease lapsed or released;
	//   - an error matching [ErrLeaseWindowExhausted] when the window closes, even while a call hangs,
	//     when the token is released, and when an observer or the store panics in the background;
	//   - the cause of ctx when ctx ends.
	//
	// One StartRenewal a tenure is enough: each has its own timer and its own three attempts, until the
	// window closes.
	//
	// stopRenewal ends the renewing alone: renewCtx stays alive until the window closes, the token is
	// released, or ctx ends. It may be called from any goroutine, any number of times, and does not
	// wait for an attempt in flight. Neither goroutine nor timer outlives the window, except a call
	// into a store or an observer that does not return.
	//
	// A token whose window is closed already, a nil ctx, or one that carries a transaction for the store
	// to write in, gives a renewCtx that has ended.
	StartRenewal(ctx context.Context, token Token, opts ...RenewalOption) (renewCtx context.Context, stopRenewal func())
}

// Config configures a [Lease]. TTL and HolderID are required.
type Config struct {
	// TTL is how long a lease lasts without renewal, at least a millisecond. It bounds how long work
	// stays with a holder that died, and how long a store may be away before the work must stop.
	TTL time.Duration
	// HolderID names the holder to others: a host, a pod, a process. It must be valid UTF-8 without
	// NUL, of 1 to 1,024 bytes; white space counts like any other character. Fencing does not depend
	// on it being unique, but a log that says who holds what does.
	HolderID string
	// Observer is told of every call to the store. nil: nobody is.
	Observer LeaseObserver
}

// New returns a Lease that keeps its leases in b. Its errors match [ErrConfigInvalid]; that of a nil b
// is [ErrNilBackend]. There is nothing to close: b stays the caller's.
func New(b backend.Backend, cfg Config) (Lease, error) {
	if b == nil {
		return nil, fmt.Errorf("worklease: new: %w", ErrNilBackend)
	}
	if cfg.TTL < time.Millisecond {
		return nil, fmt.Errorf("worklease: new: %w: the TTL %v is below 1ms", ErrConfigInvalid, cfg.TTL)
	}
	if err := ident.Check(cfg.HolderID); err != nil {
		return nil, fmt.Errorf("worklease: new: %w: the holder ID %w", ErrConfigInvalid, err)
	}
	l := &lease{
		backend:  b,
		ttl:      cfg.TTL,
		holderID: cfg.HolderID,
		observer: cfg.Observer,
		now:      localNow,
	}
	l.tx, _ = backend.As[backend.Transactional](b)
	l.reader, _ = backend.As[backend.AcquireReader](b)
	l.releaser, _ = backend.As[backend.CheckpointReleaser](b)
	l.waiting.lease = l
	l.waiting.waker, _ = backend.As[backend.Waker](b)
	l.waiting.looker, _ = backend.As[backend.Looker](b)
	if store, ok := backend.As[backend.BatchRenewer](b); ok {
		l.batch = &batch{lease: l, store: store}
	}
	return l, nil
}

// lease adds to the store what is the same for all calls: holder ID and TTL, the window, the errors'
// context and the events. Its methods say what is particular to each.
type lease struct {
	backend  backend.Backend
	tx       backend.Transactional      // nil: the store knows no transactions of the caller's
	reader   backend.AcquireReader      // nil: the checkpoint is read in a call of its own
	releaser backend.CheckpointReleaser // nil: the final state is saved in a call of its own
	batch    *batch                     // nil: the store renews one by one
	waiting  waiting
	ttl      time.Duration
	holderID string
	observer LeaseObserver // nil: nobody is told
	now      func() instant
}

func (l *lease) ReadCheckpoint(ctx context.Context, token Token) (Checkpoint, error) {
	var found Checkpoint
	err := l.call(ctx, readCheckpoint, token, func() (err error) {
		found, err = l.backend.ReadCheckpoint(ctx, token.record)
		return err
	}, func(took time.Duration, err error) {
		l.observer.OnReadCheckpoint(ctx, readEvent(token, found, took, err))
	})
	if err != nil {
		return Checkpoint{}, err
	}
	return found, nil
}

func readEvent(token Token, found Checkpoint, took time.Duration, err error) ReadCheckpointEvent {
	return ReadCheckpointEvent{
		Token: token, PrevExit: found.PrevExit, PrevHolderID: found.PrevHolderID,
		Size: len(found.State), Duration: took, Err: err,
	}
}

func (l *lease) Checkpoint(ctx context.Context, token Token, state []byte) error {
	return l.call(ctx, checkpoint, token, func() error {
		return l.backend.Checkpoint(ctx, token.record, state, l.ttl)
	}, func(took time.Duration, err error) {
		l.observer.OnCheckpoint(ctx, CheckpointEvent{Token: token, Size: len(state), Duration: took, Err: err})
	})
}

// CheckpointRelease is a Checkpoint and, if that succeeds, a Release, in one call to the store, which is the
// Duration of both events. An error is that of the Checkpoint: no OnRelease tells of it, and the lease is
// still to be released. But unless it matches ErrFenced or ErrLeaseExpired, both may have taken effect. On a
// store that cannot do that it fails with [errors.ErrUnsupported], and nothing has happened. It is no method
// of Lease: package tenure asks for it.
func (l *lease) CheckpointRelease(ctx context.Context, token Token, state []byte, mode ExitMode) error {
	if !mode.Declarable() {
		return failed(checkpointRelease.verb, token.record, fmt.Errorf("%w: %v", ErrInvalidExitMode, mode))
	}
	if l.releaser == nil {
		return failed(checkpointRelease.verb, token.record, errors.ErrUnsupported)
	}
	return l.call(ctx, checkpointRelease, token, func() error {
		return l.releaser.CheckpointRelease(ctx, token.record, state, mode)
	}, func(took time.Duration, err error) {
		l.observer.OnCheckpoint(ctx, CheckpointEvent{Token: token, Size: len(state), Duration: took, Err: err})
		if err == nil {
			l.observer.OnRelease(ctx, ReleaseEvent{Token: token, Mode: mode, Duration: took})
		}
	})
}

func (l *lease) Renew(ctx context.Context, token Token) error {
	return l.renew(ctx, token, 1)
}

func (l *lease) renew(ctx context.Context, token Token, attempt int) error {
	return l.call(ctx, renew, token, func() error {
		return l.backend.Renew(ctx, token.record, l.ttl)
	}, func(took time.Duration, err error) {
		l.observer.OnRenew(ctx, RenewEvent{Token: token, Duration: took, Attempt: attempt, Err: err})
	})
}

func (l *lease) Release(ctx context.Context, token Token, mode ExitMode) error {
	if !mode.Declarable() {
		return failed("release", token.record, fmt.Errorf("%w: %v", ErrInvalidExitMode, mode))
	}
	return l.call(ctx, release, token, func() error {
		return l.backend.Release(ctx, token.record, mode)
	}, func(took time.Duration, err error) {
		l.observer.OnRelease(ctx, ReleaseEvent{Token: token, Mode: mode, Duration: took, Err: err})
	})
}

func (l *lease) Forget(ctx context.Context, token Token) error {
	return l.call(ctx, forget, token, func() error {
		return l.backend.Forget(ctx, token.record)
	}, func(took time.Duration, err error) {
		l.observer.OnForget(ctx, ForgetEvent{Token: token, Duration: took, Err: err})
	})
}
