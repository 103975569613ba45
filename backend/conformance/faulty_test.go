package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/aetomala/worklease/backend"
)

// A faulty is a store that keeps the contract but for one fault.
type faulty struct {
	fault string // empty for none
	mu    sync.Mutex
	rows  map[string]faultyRow
	last  uint64

	waiters map[string][]chan struct{}
}

type faultyRow struct {
	holderID     string
	token        uint64
	expiresAt    time.Time
	updatedAt    time.Time
	state        []byte
	exit         backend.ExitMode
	prevExit     backend.ExitMode
	prevHolderID string
}

func newFaulty(fault string) *faulty {
	return &faulty{fault: fault, rows: make(map[string]faultyRow)}
}

func (f *faulty) has(fault string) bool { return f.fault == fault }

// stall gives every other goroutine a chance to come between.
func stall() {
	for range 100 {
		runtime.Gosched()
	}
}

// pause opens the lock for a moment, as a store does that reads and writes in two steps.
func (f *faulty) pause() {
	f.mu.Unlock()
	stall()
	f.mu.Lock()
}

func (f *faulty) done(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil && !f.has("a done context is not looked at") {
		return fmt.Errorf("faulty: %s: %w", op, err)
	}
	return nil
}

func (f *faulty) key(workID string) string {
	switch {
	case f.has("work IDs are folded to lower case"):
		return strings.ToLower(workID)
	case f.has("work IDs lose trailing space"):
		return strings.TrimRight(workID, " ")
	case f.has("work IDs are cut at 1,000 bytes"):
		return workID[:min(len(workID), 1000)]
	}
	return workID
}

func (f *faulty) sameHolder(a, b string) bool {
	return a == b || f.has("the holder is not compared") ||
		f.has("holder IDs are compared without case") && strings.EqualFold(a, b)
}

func (f *faulty) draw(r faultyRow) uint64 {
	if f.has("each work ID has tokens of its own") {
		return r.token + 1
	}
	if f.has("the token is one more than the highest stored") {
		f.last = 0
		for _, other := range f.rows {
			f.last = max(f.last, other.token)
		}
	}
	f.last++
	return f.last
}

func (f *faulty) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	if err := f.done(ctx, "acquire"); err != nil && !f.has("a done context is reported too late") {
		return backend.LeaseRecord{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()

	var token uint64
	if f.has("the token is drawn before the row is locked") {
		token = f.draw(faultyRow{})
		f.pause()
	}
	key, now := f.key(workID), time.Now()
	r, found := f.rows[key]
	reenters := f.has("a lease is re-entrant") && r.holderID == holderID
	if found && now.Before(r.expiresAt) && !reenters {
		return backend.LeaseRecord{}, f.heldError(workID, holderID, r)
	}
	if f.has("Acquire checks and writes in two steps") {
		f.pause()
	}
	if found {
		r.prevExit, r.prevHolderID = r.exit, r.holderID
		if r.exit == backend.ExitNone {
			r.prevExit = backend.ExitExpired
		}
	}
	if f.has("retired is captured as finished") && r.prevExit == backend.ExitRetired {
		r.prevExit = backend.ExitFinished
	}
	if f.has("the previous holder is the new one") && found {
		r.prevHolderID = holderID
	}
	if f.has("the state is lost at the handover") {
		r.state = nil
	}
	if !f.has("the declared exit is not cleared") {
		r.exit = backend.ExitNone
	}
	if token == 0 {
		token = f.draw(r)
	}
	if f.has("a lease lapses early") {
		ttl /= 2
	}
	r.holderID, r.token, r.expiresAt, r.updatedAt = holderID, token, now.Add(ttl), now
	f.rows[key] = r
	return backend.LeaseRecord{WorkID: workID, HolderID: holderID, FencingToken: token, ExpiresAt: r.expiresAt}, f.done(ctx, "acquire")
}

func (f *faulty) heldError(workID, holderID string, r faultyRow) error {
	if f.has("a HeldError names the claimant") {
		return &backend.HeldError{WorkID: workID, HolderID: holderID, ExpiresAt: r.expiresAt}
	}
	if f.has(bareErrors) {
		return backend.ErrLeaseHeld
	}
	return &backend.HeldError{WorkID: workID, HolderID: r.holderID, ExpiresAt: r.expiresAt}
}

// matched calls change with a copy of the row that record matches, and stores the copy if it succeeds.
func (f *faulty) matched(ctx context.Context, op string, record backend.LeaseRecord, change func(r *faultyRow, now time.Time) error) error {
	if err := f.done(ctx, op); err != nil && !f.has("a done context is reported too late") {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()

	key, now := f.key(record.WorkID), time.Now()
	r, found := f.rows[key]
	if f.has("expiry is checked before fencing") && found && !now.Before(r.expiresAt) && op == "renew" {
		return backend.ErrLeaseExpired
	}
	sameToken := r.token == record.FencingToken || f.has("the token is not compared")
	if !found || !sameToken || !f.sameHolder(r.holderID, record.HolderID) {
		if f.has("a fenced error matches two sentinels") {
			return errors.Join(backend.ErrFenced, backend.ErrLeaseExpired)
		}
		if f.has("Forget of no row succeeds") && !found && op == "forget" {
			return nil
		}
		return backend.ErrFenced
	}
	err := change(&r, now)
	if err == nil || f.has("a refused call writes") {
		f.rows[key] = r
	}
	if err == nil && op == "forget" {
		delete(f.rows, key)
		if f.has("Forget keeps the exits") {
			f.rows[key] = faultyRow{holderID: r.holderID, exit: backend.ExitFinished}
		}
	}
	if err == nil {
		err = f.done(ctx, op)
	}
	return err
}

func (f *faulty) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	return f.matched(ctx, "checkpoint", record, func(r *faultyRow, now time.Time) error {
		released := r.exit != backend.ExitNone
		if f.has("released is told by the expiry alone") && released {
			released = false
			r.exit = backend.ExitNone
		}
		if released {
			if f.has("a refused call writes") {
				r.state = state
			}
			return backend.ErrLeaseExpired
		}
		if f.has("Checkpoint does not revive") && !now.Before(r.expiresAt) {
			return backend.ErrLeaseExpired
		}
		if f.has("a revival checks and writes in two steps") && !now.Before(r.expiresAt) {
			f.pause()
		}
		if f.has("Checkpoint clears the previous exit") {
			r.prevExit, r.prevHolderID = backend.ExitNone, ""
		}
		if f.has("state ends at its first zero byte") {
			state, _, _ = bytes.Cut(state, []byte{0})
		}
		switch {
		case f.has("the caller's slice is kept"):
			r.state = state
		case len(state) > 0:
			r.state = bytes.Clone(state)
		case f.has("empty state is stored as such"):
			r.state = []byte{}
		case !f.has("no state leaves the state before"):
			r.state = nil
		}
		if !f.has("Checkpoint does not extend") {
			r.expiresAt = now.Add(ttl)
		}
		r.updatedAt = now
		return nil
	})
}

func (f *faulty) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	return f.matched(ctx, "renew", record, func(r *faultyRow, now time.Time) error {
		over := !now.Before(r.expiresAt) && !f.has("Renew revives")
		if over || r.exit != backend.ExitNone {
			return backend.ErrLeaseExpired
		}
		if f.has("Renew is an update") {
			r.updatedAt = now
		}
		r.expiresAt = now.Add(ttl)
		return nil
	})
}

func (f *faulty) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	invalid := func() error { return fmt.Errorf("%w: %v", backend.ErrInvalidExitMode, mode) }
	late := f.has("fencing is checked before the exit mode")
	if !mode.Declarable() && !late && !(f.has("expired may be declared") && mode == backend.ExitExpired) {
		return invalid()
	}
	return f.matched(ctx, "release", record, func(r *faultyRow, now time.Time) error {
		if !mode.Declarable() && late {
			return invalid()
		}
		again := r.exit != backend.ExitNone && !f.has("a second Release replaces the first")
		lapsed := r.exit == backend.ExitNone && !now.Before(r.expiresAt) && !f.has("a lapsed lease may be released")
		if again || lapsed {
			return backend.ErrLeaseExpired
		}
		r.exit, r.updatedAt = mode, now
		r.expiresAt = now
		if !f.has("Release wakes nobody") {
			f.wake(record.WorkID)
		}
		if f.has("Release leaves some of the lease") {
			r.expiresAt = now.Add(time.Second)
		}
		return nil
	})
}

func (f *faulty) ReadCheckpoint(ctx context.Context, record backend.LeaseRecord) (found backend.Checkpoint, err error) {
	err = f.matched(ctx, "read", record, func(r *faultyRow, now time.Time) error {
		if f.has("a lapsed lease cannot be read") && !now.Before(r.expiresAt) {
			return backend.ErrLeaseExpired
		}
		found = backend.Checkpoint{State: r.state, PrevExit: r.prevExit, PrevHolderID: r.prevHolderID}
		if !f.has("the stored slice is returned") {
			found.State = bytes.Clone(found.State)
		}
		return nil
	})
	return found, err
}

func (f *faulty) Forget(ctx context.Context, record backend.LeaseRecord) error {
	return f.matched(ctx, "forget", record, func(*faultyRow, time.Time) error {
		if f.has("Forget panics") {
			panic("forget")
		}
		if !f.has("Forget wakes nobody") {
			f.wake(record.WorkID)
		}
		return nil
	})
}

func (f *faulty) Sweep(ctx context.Context, opts backend.SweepOptions) (int64, error) {
	if err := f.done(ctx, "sweep"); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var deleted int64
	now := time.Now()
	for key, r := range f.rows {
		age := now.Sub(r.updatedAt)
		undeclared := r.exit == backend.ExitNone
		byExpiry := undeclared && r.expiresAt.After(r.updatedAt) && !f.has("Sweep overlooks the later expiry")
		if byExpiry || undeclared && f.has("Sweep goes by the expiry") {
			age = now.Sub(r.expiresAt)
		}
		selected := r.exit == backend.ExitRetired ||
			undeclared && (opts.IncludeExpired || f.has("Sweep always takes the expired")) ||
			r.exit == backend.ExitFinished && f.has("Sweep takes the finished")
		held := now.Before(r.expiresAt) && !f.has("Sweep takes the held") &&
			!(r.exit != backend.ExitNone && f.has("Sweep takes what is to be free"))
		if !held && selected && (age > opts.Retention || f.has("Sweep overlooks Retention")) {
			if f.has("Sweep selects and deletes in two steps") {
				f.pause()
			}
			delete(f.rows, key)
			deleted++
		}
	}
	if f.has("Sweep counts one too many") {
		deleted++
	}
	return deleted, nil
}
