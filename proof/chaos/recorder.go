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

// apart declines what makes two steps in one: each is to be told of by itself.
type apart struct{}

func (apart) AcquireRead(context.Context, string, string, time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
	return backend.LeaseRecord{}, backend.Checkpoint{}, errors.ErrUnsupported
}

func (apart) CheckpointRelease(context.Context, backend.LeaseRecord, []byte, backend.ExitMode) error {
	return errors.ErrUnsupported
}

// recorded is a store that tells of its calls.
type recorded struct {
	apart
	backend.Backend
	log *recorder
}

// Unwrap leads to what the store can do beyond a Backend.
func (b recorded) Unwrap() backend.Backend { return b.Backend }

func (b recorded) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	begun := history.Now()
	b.log.write(history.Event{At: begun, Kind: history.Acquiring, Work: workID})
	record, err := b.Backend.Acquire(ctx, workID, holderID, ttl)
	e := history.Event{At: history.Now(), Kind: history.Acquired, Work: workID, Token: record.FencingToken}
	switch {
	case errors.Is(err, backend.ErrLeaseHeld) && e.At.Sub(begun) < ttl:
		return record, err // most attempts end so; the next one says it
	// A statement that database/sql sent twice may have taken the lease, lost it by the TTL, and then found
	// that another holds it, which is true.
	case err != nil:
		e.Kind, e.Text = history.AcquireLost, err.Error()
	}
	b.log.write(e)
	return record, err
}

func (b recorded) ReadCheckpoint(ctx context.Context, record backend.LeaseRecord) (backend.Checkpoint, error) {
	found, err := b.Backend.ReadCheckpoint(ctx, record)
	if err == nil {
		e := about(history.Read, record)
		e.State, e.Exit, e.Previous = string(found.State), found.PrevExit.String(), found.PrevHolderID
		b.log.write(e)
	}
	return found, err
}

// Checkpoint leaves it to the caller to tell how it ended if that is decided by a commit.
func (b recorded) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	e := about(history.Saving, record)
	e.State = string(state)
	b.log.write(e)
	err := b.Backend.Checkpoint(ctx, record, state, ttl)
	together := inTransaction(b.Backend, ctx)
	switch {
	case err == nil && together:
		return nil
	case err == nil:
		e.Kind = history.Saved
	case together || refused(err): // a transaction in which it failed cannot be committed
		e.Kind, e.Text = history.SaveRefused, err.Error()
	default:
		e.Kind, e.Text = history.SaveLost, err.Error()
	}
	e.At = history.Now()
	b.log.write(e)
	return err
}

func (b recorded) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	e := about(history.Releasing, record)
	e.Exit = mode.String()
	b.log.write(e)
	err := b.Backend.Release(ctx, record, mode)
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
	return err
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
