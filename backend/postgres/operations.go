package postgres

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/prompt"
)

// Acquire implements [backend.Backend]. A held lease costs a read: no lock, no WAL, no token.
func (b *Backend) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	return b.acquire(ctx, acquireQuery, workID, holderID, ttl, nil)
}

// acquire runs a query that acquires and, if read is not nil, reads.
func (b *Backend) acquire(ctx context.Context, q query, workID, holderID string, ttl time.Duration, read *reading) (backend.LeaseRecord, error) {
	record := backend.LeaseRecord{WorkID: workID, HolderID: holderID}
	err := b.promptly(ctx, q.name, outsideTx(func(caller context.Context) error {
		var (
			token, expires sql.NullInt64
			live, stalled  sql.NullBool
			holder, exit   sql.NullString
		)
		ctx, mark, end := outlasting(caller, prompt.Outlast)
		defer end()
		dest := append([]any{&token, &live, &stalled, &holder, &expires, &exit}, read.columns()...)
		found, again, err := b.ask(ctx, q, []any{workID, holderID, mark(microseconds(ttl))}, dest...)
		if err == nil && !found {
			err = errMixedUp
		}
		if err != nil {
			return err
		}
		if !token.Valid && !holder.Valid {
			err = b.only(caller, holderQuery, []any{workID}, &holder, &expires, &exit)
		}
		switch {
		case err != nil:
			return err
		case !token.Valid && !holder.Valid: // free by now; but the one attempt has been made
			return backend.ErrLeaseHeld
		case !token.Valid && again && holder.String == holderID: // perhaps by this very call
			return errUnanswered
		case !token.Valid:
			return heldBy(workID, holder, expires, exit)
		}
		record.FencingToken, record.ExpiresAt = uint64(token.Int64), time.UnixMicro(expires.Int64)
		if stalled.Bool && ttl > 0 { // a lease that was over from the beginning has nobody to follow
			err = b.redraw(ctx, &record, &live.Bool)
		}
		if err == nil {
			err = overOnArrival(live.Bool, ttl)
		}
		if err == nil {
			err = read.understand()
		}
		if err != nil {
			b.undo(record)
		}
		return err
	}), func() { b.undo(record) })
	if err != nil {
		return backend.LeaseRecord{}, err
	}
	return record, nil
}

// redraw gives record, whose row is new, a token that is surely above those given out for it before.
func (b *Backend) redraw(ctx context.Context, record *backend.LeaseRecord, live *bool) error {
	var token int64
	found, err := b.row(ctx, redrawQuery, identity(*record), &token, live)
	if err == nil && !found {
		err = errors.New("the lease was over before its token could be drawn")
	}
	if err == nil {
		record.FencingToken = uint64(token)
	}
	return err
}

// undo takes back an acquisition that its caller is not, or was not, told of. It is an attempt: if it
// fails, the lease lapses by itself.
func (b *Backend) undo(record backend.LeaseRecord) {
	ctx, cancel := context.WithTimeout(context.Background(), prompt.UndoTimeout)
	defer cancel()
	for _, q := range []freeing{undoFirstAcquireQuery, undoAcquireQuery} {
		if found, _, err := b.tell(ctx, q, identity(record)); found || err != nil {
			return
		}
	}
}

// maxState is the largest state that can be read again with every driver. The server sends a value that
// is asked for as text, as lib/pq does, in two digits a byte and in less than a gigabyte; of a larger
// statement it says no more than a closed connection.
var maxState = 500 << 20

// Checkpoint implements [backend.Backend]. Under a context from [InTx] it runs in that transaction.
// A state of more than 500 MiB is refused. One of tens of megabytes takes seconds, and several times its
// size of memory, here and on the server.
func (b *Backend) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	if len(state) > maxState {
		return b.promptlyInTx(ctx, "checkpoint", func(context.Context) error { return tooLarge(state) })
	}
	return b.extend(ctx, "checkpoint", checkpointQuery, record, ttl, stored(state))
}

func tooLarge(state []byte) error {
	return fmt.Errorf("a state of %d bytes is more than the limit of %d", len(state), maxState)
}

// stored is what is sent of state: a copy, since a call that its caller has left may still be sending it.
func stored(state []byte) any {
	if len(state) == 0 {
		return nil // NULL
	}
	return bytes.Clone(state)
}

// Renew implements [backend.Backend]. Under a context from [InTx] it runs in that transaction.
func (b *Backend) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	return b.extend(ctx, "renew", renewQuery, record, ttl)
}

// extend runs a query that moves the expiry.
func (b *Backend) extend(ctx context.Context, op string, q query, record backend.LeaseRecord, ttl time.Duration, more ...any) error {
	args := append(append(identity(record), microseconds(ttl)), more...)
	return b.promptlyInTx(ctx, op, b.aroundTx(record, func(ctx context.Context) error {
		var live bool
		found, err := b.row(ctx, q, args, &live)
		if err != nil {
			return err
		}
		if !found {
			return b.verdict(ctx, record)
		}
		return overOnArrival(live, ttl)
	}))
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	return b.release(ctx, releaseQuery, record, mode)
}

// release runs a query that declares an exit.
func (b *Backend) release(ctx context.Context, q freeing, record backend.LeaseRecord, mode backend.ExitMode, more ...any) error {
	if !mode.Declarable() {
		return fmt.Errorf("%w: %v", backend.ErrInvalidExitMode, mode)
	}
	args := append(append(identity(record), mode.String()), more...)
	return b.promptly(ctx, q.quiet.name, outsideTx(func(ctx context.Context) error {
		defer b.queues.close(record.FencingToken)
		found, err := known(b.tell(ctx, q, args))
		if err == nil && !found {
			err = b.verdict(ctx, record)
		}
		return err
	}), nil)
}

// ReadCheckpoint implements [backend.Backend]. Under a context from [InTx] it reads in that
// transaction, and so what that has written.
func (b *Backend) ReadCheckpoint(ctx context.Context, record backend.LeaseRecord) (backend.Checkpoint, error) {
	var read reading
	err := b.promptlyInTx(ctx, "read checkpoint", func(ctx context.Context) error {
		var matches bool
		err := b.only(ctx, readCheckpointQuery, identity(record), append([]any{&matches}, read.columns()...)...)
		if err != nil {
			return err
		}
		if !matches {
			return backend.ErrFenced
		}
		return read.understand()
	})
	if err != nil {
		return backend.Checkpoint{}, err
	}
	return read.found, nil
}

// Forget implements [backend.Backend].
func (b *Backend) Forget(ctx context.Context, record backend.LeaseRecord) error {
	return b.promptly(ctx, "forget", outsideTx(func(ctx context.Context) error {
		defer b.queues.close(record.FencingToken)
		found, err := known(b.tell(ctx, forgetQuery, identity(record)))
		if err != nil || found {
			return err
		}
		if err = b.verdict(ctx, record); errors.Is(err, backend.ErrLeaseExpired) {
			return errMixedUp // the row is there, whatever its state
		}
		return err
	}), nil)
}

// verdict says why a statement found no row to change for record.
func (b *Backend) verdict(ctx context.Context, record backend.LeaseRecord) error {
	var (
		matches           bool
		undeclared, alive sql.NullBool
	)
	err := b.only(ctx, verdictQuery, identity(record), &matches, &undeclared, &alive)
	switch {
	case err != nil:
		return err
	case !matches:
		return backend.ErrFenced
	case undeclared.Bool && alive.Bool:
		return errNotChanged
	default:
		return backend.ErrLeaseExpired
	}
}

// overOnArrival refuses a success that is none any more.
func overOnArrival(live bool, ttl time.Duration) error {
	if live || ttl <= 0 {
		return nil
	}
	return fmt.Errorf("the answer took longer than the TTL of %v", ttl)
}

func identity(record backend.LeaseRecord) []any {
	return []any{record.WorkID, record.HolderID, token(record)}
}

func token(record backend.LeaseRecord) int64 {
	if record.FencingToken > math.MaxInt64 {
		return -1 // what the column cannot hold matches nothing: no token is negative
	}
	return int64(record.FencingToken)
}

// microseconds is the server's resolution. Rounding up keeps the lease from ending before its window.
func microseconds(d time.Duration) int64 {
	us := d.Microseconds()
	if d%time.Microsecond > 0 {
		us++
	}
	return us
}

var exitModes = map[string]backend.ExitMode{}

func init() {
	for m := backend.ExitNone; m <= backend.ExitExpired; m++ {
		exitModes[m.String()] = m
	}
}

// heldBy is the error of an Acquire that somebody stands in the way of.
func heldBy(workID string, holder sql.NullString, expires sql.NullInt64, exit sql.NullString) error {
	held := &backend.HeldError{WorkID: workID, HolderID: holder.String, ExpiresAt: time.UnixMicro(expires.Int64)}
	if exit.Valid { // a release that is yet to take effect
		mode, err := exitMode(exit.String)
		if err != nil {
			return err
		}
		held.Exit = mode
	}
	return held
}

func exitMode(name string) (backend.ExitMode, error) {
	mode, known := exitModes[name]
	if !known {
		return 0, fmt.Errorf("unknown previous exit %q in the table", name)
	}
	return mode, nil
}
