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
	fenced  Operation // what OnFenced is told; zero: it is not called
}

var (
	readCheckpoint = operation{verb: "read the checkpoint of"}
	checkpoint     = operation{verb: "checkpoint", extends: true, fenced: OperationCheckpoint}
	renew          = operation{verb: "renew", extends: true, fenced: OperationRenew}
	release        = operation{verb: "release", ends: true, fenced: OperationRelease}
	forget         = operation{verb: "forget", ends: true, fenced: OperationForget}
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
	start := l.now()
	losses := 0
	switch {
	case op.extends:
		losses = token.hold.begin(start, l.ttl)
	case op.ends:
		token.hold.leave()
	}
	err := do()
	var took time.Duration
	if l.observer != nil {
		took = l.now().at.Sub(start.at)
	}
	if op.ends {
		token.hold.left(err)
	}
	fenced := false
	switch {
	case err == nil && op.extends:
		if !l.inTransaction(ctx) {
			token.hold.extend(start, losses)
		}
	case err == nil && op.ends:
		token.hold.lose(errGivenUp)
	case err == nil:
	case errors.Is(err, ErrFenced):
		fenced = true
		token.hold.lose(ErrFenced)
	case errors.Is(err, ErrLeaseExpired):
		token.hold.lapse(start, errLapsed)
	}
	if err != nil {
		err = failed(op.verb, token.record, err)
	}
	if l.observer != nil {
		event(took, err)
		if fenced && op.fenced != 0 {
			l.observer.OnFenced(ctx, FencedEvent{Token: token, Operation: op.fenced})
		}
	}
	return err
}

// inTransaction reports whether what a call under ctx did is still to be committed.
func (l *lease) inTransaction(ctx context.Context) bool {
	return l.tx != nil && l.tx.InTransaction(ctx)
}

// failed is the one place where an error gets its context.
func failed(verb string, record backend.LeaseRecord, err error) error {
	return fmt.Errorf("worklease: %s %q as %q: %w", verb, record.WorkID, record.HolderID, err)
}
