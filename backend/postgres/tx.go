package postgres

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/prompt"
)

var (
	errInTx  = errors.New("the context is from InTx: a lease is neither taken nor given up in a transaction, which may roll back")
	errNilTx = errors.New("the transaction given to InTx is nil")
)

type txKey struct{}

// InTx returns a context under which Checkpoint and Renew run inside tx, so that what the transaction
// writes and the progress of the work are committed together or not at all. tx must be of the database
// that the store's table is in. ReadCheckpoint reads in tx; Acquire, Release, Forget and Sweep refuse
// such a context, and so does StartRenewal.
//
// A Checkpoint, Renew or ReadCheckpoint that reaches the store and fails, be it because the lease has
// lapsed or belongs to another by now, rolls tx back: Commit then fails, also if the error was ignored. That makes the effects exactly-once: a holder that
// was superseded cannot commit.
//
// Make the call the last statement before Commit. It locks the lease's row until the transaction ends:
// nobody can take the lease over meanwhile, but the holder's own renewal waits too, and the lease window
// does not move before a renewal comes through. A transaction that stays open for longer than the window
// costs the work its context.
//
// Under REPEATABLE READ and SERIALIZABLE the call fails with SQLSTATE 40001 if the lease was renewed
// after the transaction's first statement.
func InTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// InTransaction implements [backend.Transactional].
func (b *Backend) InTransaction(ctx context.Context) bool {
	_, ok := txFrom(ctx)
	return ok
}

func txFrom(ctx context.Context) (tx *sql.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

// outsideTx is call for operations that have no place in a transaction.
func outsideTx(call func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, ok := txFrom(ctx); ok {
			return errInTx
		}
		return call(ctx)
	}
}

// aroundTx is call for operations that go into the caller's transaction if there is one, and that wait
// for it if they are outside of it.
func (b *Backend) aroundTx(record backend.LeaseRecord, call func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, ok := txFrom(ctx); !ok {
			return b.queues.inTurn(ctx, record.FencingToken, call)
		}
		b.queues.open(record.FencingToken) // before the row is locked, or a renewal gets ahead of it
		err := call(ctx)
		if err != nil {
			abort(ctx)
			b.queues.close(record.FencingToken)
		}
		return err
	}
}

// promptlyInTx is promptly for calls that may be in a transaction: whenever it returns an error, that
// cannot be committed any more, also if the call goes on in the driver.
func (b *Backend) promptlyInTx(ctx context.Context, op string, call func(context.Context) error) error {
	err := b.promptly(ctx, op, call, nil)
	if err == nil || ctx == nil {
		return err
	}
	if tx, _ := txFrom(ctx); tx != nil {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			abort(ctx)
		}()
		select {
		case <-ended:
		case <-time.After(prompt.Grace): // it is marked as done; the server will be told when it can be reached
		}
	}
	return err
}

// abort rolls back the transaction of ctx, if there is one.
func abort(ctx context.Context) {
	if tx, _ := txFrom(ctx); tx != nil {
		_ = tx.Rollback() // if it fails there is nothing to commit either
	}
}

// queues are for leases whose row a transaction of this process has written and may still hold. Calls
// from outside of it, which background renewal makes one after another, wait for the row's lock one at
// a time, so that they take one connection and not one each.
type queues struct {
	mu      sync.Mutex
	byToken map[uint64]chan struct{} // a channel holds one value: the turn
}

func (q *queues) open(token uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.byToken == nil {
		q.byToken = make(map[uint64]chan struct{})
	}
	if q.byToken[token] == nil {
		q.byToken[token] = make(chan struct{}, 1)
	}
}

func (q *queues) inTurn(ctx context.Context, token uint64, call func(context.Context) error) error {
	q.mu.Lock()
	turn := q.byToken[token]
	q.mu.Unlock()
	if turn == nil {
		return call(ctx)
	}
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-turn }()
	err := call(ctx)
	if err == nil || prompt.IsAnswer(err) { // the row's lock was had: the transaction is over
		q.close(token)
	}
	return err
}

func (q *queues) close(tokens ...uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.byToken) == 0 {
		return
	}
	for _, token := range tokens {
		delete(q.byToken, token)
	}
}
