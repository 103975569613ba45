package upgrade

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/model"
)

// long is a TTL beyond any run, so that a lease is over only if it was to be.
const long = time.Hour

// verdicts are the errors that say something of a lease.
var verdicts = []error{backend.ErrFenced, backend.ErrLeaseHeld, backend.ErrLeaseExpired, backend.ErrInvalidExitMode}

// holder does with some of the leases whatever can be done. Nobody else touches them.
type holder struct {
	name    string
	store   backend.Backend
	rows    map[string]model.Row // as they should be
	works   []string             // all that it ever has
	random  *rand.Rand
	usable  *atomic.Bool   // the table is one that this version can use
	highest *atomic.Uint64 // token that anybody has seen

	calls, refused int // refused before the table was usable
}

// turn makes a call and compares its answer with the model's.
func (h *holder) turn(ctx context.Context) error {
	op := h.choose()
	mustWork, highest := h.usable.Load(), h.highest.Load()
	record, found, err := call(ctx, h.store, op)
	h.calls++
	row, now := h.rows[op.WorkID], time.Now()
	next, want, wantErr := apply(row, now, op, record.FencingToken)
	if err != nil && !isVerdict(err) {
		if mustWork {
			return fmt.Errorf("%s: %#v: %w", h.name, op, err)
		}
		h.refused++
		return nil
	}
	if !errors.Is(err, wantErr) {
		return fmt.Errorf("%s: %#v on %+v: got %v, want %v", h.name, op, row, err, wantErr)
	}
	if held, ok := errors.AsType[*backend.HeldError](err); ok && held.HolderID != row.HolderID {
		return fmt.Errorf("%s: %#v: held by %q, want %q", h.name, op, held.HolderID, row.HolderID)
	}
	if string(found.State) != string(want.State) || found.PrevExit != want.PrevExit || found.PrevHolderID != want.PrevHolderID {
		return fmt.Errorf("%s: %#v: found %q, %v of %q, want %q, %v of %q", h.name, op,
			found.State, found.PrevExit, found.PrevHolderID, want.State, want.PrevExit, want.PrevHolderID)
	}
	if err == nil && op.Kind == model.Acquire {
		if record.FencingToken <= max(highest, row.Token) {
			return fmt.Errorf("%s: %#v: token %d after %d", h.name, op, record.FencingToken, max(highest, row.Token))
		}
		h.saw(record.FencingToken)
	}
	if next.Exists() {
		h.rows[op.WorkID] = next
	} else {
		delete(h.rows, op.WorkID)
	}
	return nil
}

func (h *holder) saw(token uint64) {
	for {
		highest := h.highest.Load()
		if token <= highest || h.highest.CompareAndSwap(highest, token) {
			return
		}
	}
}

// choose picks a call that is worth making.
func (h *holder) choose() model.Op {
	work := h.works[h.random.IntN(len(h.works))]
	row, exists := h.rows[work]
	op := model.Op{WorkID: work, HolderID: row.HolderID, Token: row.Token, TTL: long}
	if h.random.IntN(10) == 0 { // what is over on arrival
		op.TTL = 0
	}
	if h.random.IntN(20) == 0 { // what nobody has any more
		op.Token--
	}
	kinds := []model.Kind{
		model.Checkpoint, model.Checkpoint, model.Checkpoint, model.Renew, model.Renew,
		model.ReadCheckpoint, model.ReadCheckpoint, model.Release, model.Release, model.Acquire, model.Forget,
	}
	if over := !exists || row.Over(time.Now()); over && h.random.IntN(4) > 0 {
		kinds = []model.Kind{model.Acquire}
	}
	switch op.Kind = kinds[h.random.IntN(len(kinds))]; op.Kind {
	case model.Acquire:
		op.HolderID = fmt.Sprintf("%s in call %d", h.name, h.calls)
	case model.Checkpoint:
		op.State = fmt.Appendf(nil, "%s in call %d", h.name, h.calls)
	case model.Release:
		op.Mode = []backend.ExitMode{backend.ExitFinished, backend.ExitAbandoned, backend.ExitRetired}[h.random.IntN(3)]
	case model.Forget:
		if h.random.IntN(4) > 0 { // rarely: what is forgotten is no more of the old table
			op.Kind = model.ReadCheckpoint
		}
	}
	return op
}

func call(ctx context.Context, store backend.Backend, op model.Op) (record backend.LeaseRecord, found backend.Checkpoint, err error) {
	switch op.Kind {
	case model.Acquire:
		record, err = store.Acquire(ctx, op.WorkID, op.HolderID, op.TTL)
	case model.Checkpoint:
		err = store.Checkpoint(ctx, op.Record(), op.State, op.TTL)
	case model.Renew:
		err = store.Renew(ctx, op.Record(), op.TTL)
	case model.Release:
		err = store.Release(ctx, op.Record(), op.Mode)
	case model.ReadCheckpoint:
		found, err = store.ReadCheckpoint(ctx, op.Record())
	case model.Forget:
		err = store.Forget(ctx, op.Record())
	}
	return record, found, err
}

// apply is what op makes of a row, and what it answers.
func apply(row model.Row, now time.Time, op model.Op, token uint64) (next model.Row, found backend.Checkpoint, err error) {
	next = row
	switch op.Kind {
	case model.Acquire:
		next, err = row.Acquire(now, op.HolderID, token, op.TTL)
	case model.Checkpoint:
		next, err = row.Checkpoint(now, op.Record(), string(op.State), op.TTL)
	case model.Renew:
		next, err = row.Renew(now, op.Record(), op.TTL)
	case model.Release:
		next, err = row.Release(now, op.Record(), op.Mode)
	case model.ReadCheckpoint:
		found, err = row.ReadCheckpoint(op.Record())
	case model.Forget:
		next, err = row.Forget(op.Record())
	}
	return next, found, err
}

func isVerdict(err error) bool {
	return slices.ContainsFunc(verdicts, func(verdict error) bool { return errors.Is(err, verdict) })
}

// differ returns an error for each row that is not as it should be.
func differ(want, got map[string]model.Row) error {
	var errs []error
	for _, work := range slices.Sorted(maps.Keys(want)) {
		g, w, now := got[work], want[work], time.Now()
		if g.Over(now) != w.Over(now) {
			errs = append(errs, fmt.Errorf("the lease of %q is over: %t, want %t", work, g.Over(now), w.Over(now)))
		}
		g.ExpiresAt, g.UpdatedAt, w.ExpiresAt, w.UpdatedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		if g != w {
			errs = append(errs, fmt.Errorf("the row of %q is %+v, want %+v", work, g, w))
		}
	}
	if len(got) > len(want) {
		errs = append(errs, fmt.Errorf("there are %d rows, want %d", len(got), len(want)))
	}
	return errors.Join(errs...)
}
