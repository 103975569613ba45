package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/proof/chaos/history"
)

// recorder writes the events of one process.
type recorder struct {
	holder string
	out    *os.File
}

// write sends one event, in one piece, as a pipe passes on what is shorter than a page. An event that
// cannot be written ends the process: what is not told must not happen.
func (r *recorder) write(e history.Event) {
	e.Holder = r.holder
	if len(e.Text) > 300 {
		e.Text = e.Text[:300]
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.out.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "writing an event:", err)
		os.Exit(exitNoLog)
	}
}

// recorded is a store that tells of its calls.
type recorded struct {
	backend.Backend
	log *recorder
}

// Unwrap leads to what the store can do beyond a Backend.
func (b recorded) Unwrap() backend.Backend { return b.Backend }

func (b recorded) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	begun := b.acquiring(workID)
	record, err := b.Backend.Acquire(ctx, workID, holderID, ttl)
	b.acquired(begun, workID, record, ttl, err)
	return record, err
}

// AcquireRead is told of as the two steps that it makes in one.
func (b recorded) AcquireRead(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
	store, ok := backend.As[backend.AcquireReader](b.Backend)
	if !ok {
		return backend.LeaseRecord{}, backend.Checkpoint{}, errors.ErrUnsupported
	}
	begun := b.acquiring(workID)
	record, found, err := store.AcquireRead(ctx, workID, holderID, ttl)
	b.acquired(begun, workID, record, ttl, err)
	if err == nil {
		b.read(record, found)
	}
	return record, found, err
}

func (b recorded) acquiring(workID string) (begun history.Instant) {
	begun = history.Now()
	b.log.write(history.Event{At: begun, Kind: history.Acquiring, Work: workID})
	return begun
}

func (b recorded) acquired(begun history.Instant, workID string, record backend.LeaseRecord, ttl time.Duration, err error) {
	e := history.Event{At: history.Now(), Kind: history.Acquired, Work: workID, Token: record.FencingToken}
	switch {
	case errors.Is(err, backend.ErrLeaseHeld) && e.At.Sub(begun) < ttl:
		return // most attempts end so; the next one says it
	// A statement that database/sql sent twice may have taken the lease, lost it by the TTL, and then found
	// that another holds it, which is true.
	case err != nil:
		e.Kind, e.Text = history.AcquireLost, err.Error()
	}
	b.log.write(e)
}

func (b recorded) ReadCheckpoint(ctx context.Context, record backend.LeaseRecord) (backend.Checkpoint, error) {
	found, err := b.Backend.ReadCheckpoint(ctx, record)
	if err == nil {
		b.read(record, found)
	}
	return found, err
}

func (b recorded) read(record backend.LeaseRecord, found backend.Checkpoint) {
	e := about(history.Read, record)
	e.State, e.Exit, e.Previous = string(found.State), found.PrevExit.String(), found.PrevHolderID
	b.log.write(e)
}

// Checkpoint leaves it to the caller to tell how it ended if that is decided by a commit.
func (b recorded) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	e := about(history.Saving, record)
	e.State = string(state)
	b.log.write(e)
	err := b.Backend.Checkpoint(ctx, record, state, ttl)
	switch together := inTransaction(b.Backend, ctx); {
	case together && err == nil:
		return nil
	case together: // a transaction in which it failed cannot be committed
		e.At, e.Kind, e.Text = history.Now(), history.SaveRefused, err.Error()
		b.log.write(e)
	default:
		b.saved(e, err)
	}
	return err
}

func (b recorded) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	e := b.releasing(record, mode)
	err := b.Backend.Release(ctx, record, mode)
	b.released(e, err)
	return err
}

// CheckpointRelease is told of as the two steps that it makes in one: both have happened, or neither.
func (b recorded) CheckpointRelease(ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
	store, ok := backend.As[backend.CheckpointReleaser](b.Backend)
	if !ok {
		return errors.ErrUnsupported
	}
	saving := about(history.Saving, record)
	saving.State = string(state)
	b.log.write(saving)
	releasing := b.releasing(record, mode)
	err := store.CheckpointRelease(ctx, record, state, mode)
	b.saved(saving, err)
	b.released(releasing, err)
	return err
}

func (b recorded) saved(e history.Event, err error) {
	switch {
	case err == nil:
		e.Kind = history.Saved
	case refused(err):
		e.Kind, e.Text = history.SaveRefused, err.Error()
	default:
		e.Kind, e.Text = history.SaveLost, err.Error()
	}
	e.At = history.Now()
	b.log.write(e)
}

func (b recorded) releasing(record backend.LeaseRecord, mode backend.ExitMode) history.Event {
	e := about(history.Releasing, record)
	e.Exit = mode.String()
	b.log.write(e)
	return e
}

func (b recorded) released(e history.Event, err error) {
	switch {
	case err == nil:
		e.Kind = history.Released
	case refused(err):
		e.Kind, e.Text = history.NotReleased, err.Error()
	default:
		e.Kind, e.Text = history.ReleaseLost, err.Error()
	}
	e.At = history.Now()
	b.log.write(e)
}

func about(kind history.Kind, record backend.LeaseRecord) history.Event {
	return history.Event{At: history.Now(), Kind: kind, Work: record.WorkID, Token: record.FencingToken}
}

// refused reports whether the store has said no, which it only does when it has changed nothing.
func refused(err error) bool {
	return errors.Is(err, backend.ErrFenced) || errors.Is(err, backend.ErrLeaseExpired)
}

func inTransaction(b backend.Backend, ctx context.Context) bool {
	store, ok := backend.As[*postgres.Backend](b)
	return ok && store.InTransaction(ctx)
}
