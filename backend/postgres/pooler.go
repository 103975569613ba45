package postgres

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"
)

const (
	poolerTime    = time.Second // for all that is done about a pooler
	poolerWorkers = 4           // statements at a time
	poolerCalls   = 100         // a worker; where statements are mixed up, the first few show it
)

// echoes are alike in shape, so that the server does not notice if one gets the parameters of another.
var echoes = [2]query{
	{"check one", `SELECT 'check one', $2::bigint WHERE $1::text = 'check one'`},
	{"check two", `SELECT 'check two', $2::bigint WHERE $1::text = 'check two'`},
}

// poolerFinding says whether there is a pooler that mixes up statements sent in the store's way.
func (b *Backend) poolerFinding(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, poolerTime)
	defer cancel()
	pooled, err := sessionsAreShared(ctx, b.db)
	if err == nil && pooled {
		err = b.mixUp(ctx)
	}
	return err
}

// sessionsAreShared reports whether connections of the pool are not sessions of their own, as behind
// a pooler in transaction mode: two that are open at once answer from the same server process, or one
// from two. A pooler that lies in wait, since it has a process for each as yet, goes unnoticed.
func sessionsAreShared(ctx context.Context, db *sql.DB) (bool, error) {
	if db.Stats().MaxOpenConnections == 1 {
		return false, nil
	}
	var conns [2]*sql.Conn
	for i := range conns {
		conn, err := db.Conn(ctx)
		if err != nil {
			return false, unlessOver(ctx, err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	var known [2]int64
	for range 3 {
		for i, conn := range conns {
			var pid int64
			if err := conn.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				return false, unlessOver(ctx, err)
			}
			if known[i] != 0 && known[i] != pid {
				return true, nil
			}
			known[i] = pid
		}
		if known[0] == known[1] {
			return true, nil
		}
	}
	return false, nil
}

// mixUp sends echoes until one comes back wrong, and returns what went wrong.
func (b *Backend) mixUp(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var prepared [len(echoes)]*sql.Stmt
	for i, q := range echoes {
		if b.prepared == nil {
			break
		}
		stmt, err := b.db.PrepareContext(ctx, q.text)
		if err != nil {
			return unlessOver(ctx, err)
		}
		prepared[i] = stmt // never closed, for the reason that statements gives
	}
	workers := poolerWorkers
	if limit := b.db.Stats().MaxOpenConnections; limit > 0 {
		workers = min(workers, limit)
	}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for n := range poolerCalls {
				i := (w + n) % len(echoes)
				if err := b.echo(ctx, echoes[i], prepared[i], int64(w*poolerCalls+n)); err != nil {
					cancel(unlessOver(ctx, err))
					return
				}
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (b *Backend) echo(ctx context.Context, q query, stmt *sql.Stmt, sent int64) error {
	var (
		row      *sql.Row
		name     string
		returned int64
	)
	if stmt != nil {
		row = stmt.QueryRowContext(ctx, q.name, sent)
	} else {
		row = b.db.QueryRowContext(ctx, q.text, q.name, sent)
	}
	err := row.Scan(&name, &returned)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && (name != q.name || returned != sent):
		return errMixedUp
	default:
		return err
	}
}

// unlessOver is err unless the time is up: then what was not found was not found.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
