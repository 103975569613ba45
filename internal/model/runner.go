package model

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/aetomala/worklease/backend"
)

// Clock is the clock of a store under test.
type Clock interface {
	// Now reads it.
	Now(ctx context.Context) (time.Time, error)
	// Advance moves it by d. Where it cannot be moved, the instants in the rows move the other way, and Now
	// and Rows add what they have moved by.
	Advance(ctx context.Context, d time.Duration) error
}

// Reader reads the rows of a store under test behind its back.
type Reader interface {
	// Rows returns all rows by work ID, with the tokens as they are stored. A zero UpdatedAt says that the
	// store does not keep it.
	Rows(ctx context.Context) (map[string]Row, error)
}

// Config says what a [Runner] runs on. The store must be empty.
type Config struct {
	Backend backend.Backend
	// Clock may stand still between two calls of Advance: then all instants are compared exactly. If it
	// goes on, a call happens at some time from just before it to just after it; what it stores and
	// answers must be what the model says of one of these, and Rows is needed to learn of which.
	Clock Clock
	// Rows may be nil: then only answers are compared.
	Rows Reader
	// Resolution is that of [Store].
	Resolution time.Duration
}

// Runner compares a store with the model, step by step. It is not safe for concurrent use.
type Runner struct {
	Config
	model  Store
	tokens []uint64 // by rank
	ops    []Op
}

// NewRunner returns a Runner whose next step is the first.
func NewRunner(config Config) *Runner {
	return &Runner{Config: config, model: Store{Resolution: config.Resolution}}
}

// Model returns the state that the store should be in. It is only to be looked at.
func (r *Runner) Model() *Store { return &r.model }

// Trace returns the steps so far, as the source of a regression case.
func (r *Runner) Trace() string {
	var b strings.Builder
	for _, op := range r.ops {
		fmt.Fprintf(&b, "%#v,\n", op)
	}
	return b.String()
}

// Step applies op to the store and to the model. An error says in what they differ, or what prevents a
// comparison; no further step makes sense then.
func (r *Runner) Step(ctx context.Context, op Op) error {
	r.ops = append(r.ops, op)
	if op.Kind == Advance {
		if err := r.Clock.Advance(ctx, op.By); err != nil {
			return fmt.Errorf("moving the clock: %w", err)
		}
	}
	before, err := r.Clock.Now(ctx)
	if err != nil {
		return fmt.Errorf("reading the clock: %w", err)
	}
	r.model.Now = before
	if op.Kind == Advance {
		return nil
	}
	got := r.call(ctx, op)
	after, err := r.Clock.Now(ctx)
	if err != nil {
		return fmt.Errorf("reading the clock: %w", err)
	}
	if err := r.rank(&got); err != nil {
		return fmt.Errorf("%#v: %w", op, err)
	}
	var rows map[string]Row
	if r.Rows != nil {
		if rows, err = r.rows(ctx); err != nil {
			return fmt.Errorf("%#v: %w", op, err)
		}
	}
	if r.model, err = r.compare(op, before, after, got, rows); err != nil {
		return fmt.Errorf("%#v at %v: %w", op, before.UTC().Format(time.RFC3339Nano), err)
	}
	return nil
}

// call makes the call, with slices that are overwritten once they are the other side's.
func (r *Runner) call(ctx context.Context, op Op) (got Result) {
	if op.Done {
		done, cancel := context.WithCancel(ctx)
		cancel()
		ctx = done
	}
	record := op.Record()
	record.FencingToken = r.token(op.Token)
	switch op.Kind {
	case Acquire:
		got.Record, got.Err = r.Backend.Acquire(ctx, op.WorkID, op.HolderID, op.TTL)
	case Checkpoint:
		state := slices.Clone(op.State)
		got.Err = r.Backend.Checkpoint(ctx, record, state, op.TTL)
		scribble(state)
	case Renew:
		got.Err = r.Backend.Renew(ctx, record, op.TTL)
	case Release:
		got.Err = r.Backend.Release(ctx, record, op.Mode)
	case ReadCheckpoint:
		got.Found, got.Err = r.Backend.ReadCheckpoint(ctx, record)
		state := got.Found.State
		got.Found.State = slices.Clone(state)
		scribble(state)
	case Forget:
		got.Err = r.Backend.Forget(ctx, record)
	case Sweep:
		got.Deleted, got.Err = r.Backend.Sweep(ctx, backend.SweepOptions{Retention: op.Retention, IncludeExpired: op.IncludeExpired})
	}
	return got
}

func scribble(state []byte) {
	for i := range state {
		state[i] = '!'
	}
}

// token returns the store's token of a rank, or one that the store never gives out: half of these are
// too large for a signed number.
func (r *Runner) token(rank uint64) uint64 {
	switch {
	case rank == 0:
		return 0
	case rank <= uint64(len(r.tokens)):
		return r.tokens[rank-1]
	case rank%2 == 0:
		return math.MaxUint64 - rank
	default:
		return math.MaxInt64 - rank
	}
}

// rank replaces the token of a new record by its rank.
func (r *Runner) rank(got *Result) error {
	token := got.Record.FencingToken
	if got.Err != nil || got.Record == (backend.LeaseRecord{}) {
		return nil
	}
	if n := len(r.tokens); token == 0 || n > 0 && token <= r.tokens[n-1] {
		return fmt.Errorf("the new token is %d, and those before are %v", token, r.tokens)
	}
	r.tokens = append(r.tokens, token)
	got.Record.FencingToken = uint64(len(r.tokens))
	return nil
}

func (r *Runner) rows(ctx context.Context) (map[string]Row, error) {
	rows, err := r.Rows.Rows(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the rows: %w", err)
	}
	for workID, row := range rows {
		i, given := slices.BinarySearch(r.tokens, row.Token)
		if !given {
			return nil, fmt.Errorf("the row of %q has the token %d, and given out were %v", workID, row.Token, r.tokens)
		}
		row.Token = uint64(i + 1)
		rows[workID] = row
	}
	return rows, nil
}

// compare returns the model after op, if it agrees with what the store answered and, unless rows is nil,
// keeps.
func (r *Runner) compare(op Op, before, after time.Time, got Result, rows map[string]Row) (Store, error) {
	var (
		spread = after.Sub(before)
		errs   []error
	)
	for _, now := range []time.Time{before, after} {
		store := r.model.At(now)
		want := store.Apply(op)
		if op.Kind == Sweep && rows != nil && spread > 0 {
			late := r.model.At(after)
			late.Apply(op)
			want.Deleted += store.follow(late, rows)
		}
		err := errors.Join(want.differs(got, spread), differ(store.Rows, rows, op.WorkID, spread))
		if err == nil {
			if spread > 0 {
				store.adopt(rows)
			}
			return store, nil
		}
		if errs = append(errs, err); spread == 0 {
			break
		}
	}
	return r.model, errors.Join(errs...)
}
