package worklease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aetomala/worklease/backend"
)

// operation is what the front must know of one kind of call with a token.
type operation struct {
	verb    string
	extends bool      // success opens a new window
	ends    bool      // success ends the lease
	extra   bool      // it ends, and a store may say that it cannot: as if it had not been asked
	fenced  Operation // what OnFenced is told; zero: it is not called
}

var (
	readCheckpoint = operation{verb: "read the checkpoint of"}
	checkpoint     = operation{verb: "checkpoint", extends: true, fenced: OperationCheckpoint}
	renew          = operation{verb: "renew", extends: true, fenced: OperationRenew}
	release        = operation{verb: "release", ends: true, fenced: OperationRelease}
	forget         = operation{verb: "forget", ends: true, fenced: OperationForget}

	checkpointRelease = operation{verb: "checkpoint and release", ends: true, extra: true, fenced: OperationCheckpoint}
)

// call makes one call to the store with a token: it draws the consequences for the window, wraps the
// error, and tells the observer. The window comes first, so that no observer can delay its news.
func (l *lease) call(ctx context.Context, op operation, token Token, do func() error, event func(time.Duration, error)) error {
	if ctx == nil {
		return failed(op.verb, token.record, errNilContext)
	}
	if token.hold == nil {
		return failed(op.verb, token.record, ErrFenced)
	}
	began := l.begin(op, token)
	err := do()
	if op.extra && errors.Is(err, errors.ErrUnsupported) {
		token.hold.left(nil)
		return failed(op.verb, token.record, err)
	}
	var took time.Duration
	if l.observer != nil {
		took = l.now().at.Sub(began.start.at)
	}
	err, fenced := l.conclude(ctx, op, token, began, err)
	if l.observer != nil {
		event(took, err)
		if fenced && op.fenced != 0 {
			l.observer.OnFenced(ctx, FencedEvent{Token: token, Operation: op.fenced})
		}
	}
	return err
}

// beginning is what a call must know of its beginning when it has ended.
type beginning struct {
	start  instant
	losses int // of the lease, until then
}

// begin makes known that a call is under way.
func (l *lease) begin(op operation, token Token) beginning {
	b := beginning{start: l.now()}
	switch {
	case op.extends:
		b.losses = token.hold.begin(b.start, l.ttl)
	case op.ends:
		token.hold.leave()
	}
	return b
}

// conclude draws the consequences for the window from what the store answered, and returns that with its
// context, and whether the holder is fenced.
func (l *lease) conclude(ctx context.Context, op operation, token Token, began beginning, err error) (wrapped error, fenced bool) {
	if op.ends {
		token.hold.left(err)
	}
	switch {
	case err == nil && op.extends:
		if !l.inTransaction(ctx) {
			token.hold.extend(began.start, began.losses)
		}
	case err == nil && op.ends:
		token.hold.lose(errGivenUp)
	case err == nil:
	case errors.Is(err, ErrFenced):
		fenced = true
		token.hold.lose(ErrFenced)
	case errors.Is(err, ErrLeaseExpired):
		token.hold.lapse(began.start, errLapsed)
	}
	if err != nil {
		err = failed(op.verb, token.record, err)
	}
	return err, fenced
}

// inTransaction reports whether what a call under ctx did is still to be committed.
func (l *lease) inTransaction(ctx context.Context) bool {
	return l.tx != nil && l.tx.InTransaction(ctx)
}

// failed is the one place where an error gets its context.
func failed(verb string, record backend.LeaseRecord, err error) error {
	return fmt.Errorf("worklease: %s %q as %q: %w", verb, record.WorkID, record.HolderID, err)
}
