package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aetomala/worklease/internal/pause"
)

const (
	// lockWait is how long a lock on the table is waited for, and hence how long holders may have to
	// queue behind. It is less than the server's deadlock_timeout, so that this side gives way.
	lockWait = 500 * time.Millisecond
	// migrateAttempts bounds how often it is tried, for the better part of half a minute.
	migrateAttempts = 40
)

// Migrate creates the table and the sequence, or brings those of an older version up to date, in the
// schema in which search_path finds the table, or else in the first one that exists. It needs the role
// that owns them, or that may create them.
//
// Any number of processes may call it at once, at every start, and while holders of this version work.
// What is up to date is not written to, nor locked in a way that delays a holder; the table is read
// once, to compare its tokens with the sequence. What is not is changed in a transaction, by
// statements that rewrite no rows. Live leases stay live, tokens and checkpoints stay as they are, and
// the sequence ends up above every token. Processes of an older version must have been stopped, since
// they cannot work with the table afterwards. UPGRADING.md has the same steps as SQL.
//
// A lock that others do not give up is asked for again for about half a minute, with pauses in which
// they can work. When ctx ends, Migrate returns its error; the step under way has then been made as a
// whole or not at all, and another call does the rest. What Migrate cannot change, such as the type
// of a column, is an error that names it, after the rest has been done. Errors carry the driver's.
func Migrate(ctx context.Context, db *sql.DB) error {
	if db == nil {
		return errors.New("postgres: migrate: the *sql.DB is nil")
	}
	b := &Backend{db: db}
	return b.promptly(ctx, "migrate", func(ctx context.Context) error { return migrate(ctx, db) }, nil)
}

func migrate(ctx context.Context, db *sql.DB) error {
	var lost error
	for range migrateAttempts {
		if lost != nil {
			if err := giveWay(ctx); err != nil {
				return errors.Join(err, lost)
			}
		}
		done, err := step(ctx, db)
		if done || err != nil && !lostRace(err) {
			return err
		}
		lost = err
	}
	if lost == nil {
		lost = errors.New("it does not become what it should be")
	}
	return fmt.Errorf("given up after %d attempts: %w", migrateAttempts, lost)
}

// step does what there is to be done next, in one transaction.
func step(ctx context.Context, db *sql.DB) (done bool, err error) {
	found, err := look(ctx, db)
	if err != nil {
		return false, err
	}
	next := found.plan()
	switch {
	case len(next.statements) == 0:
		return true, errors.Join(next.unsolved...)
	case found.Standby || found.ReadOnly:
		return false, fmt.Errorf("there is something to do (%s), but %s", next.why, cures["25006"])
	}
	return false, inTransaction(ctx, db, func(tx *sql.Tx) error {
		if found.Table != nil {
			lock := fmt.Sprintf("LOCK TABLE %s IN %s MODE", found.Table.Name, next.lock)
			if err := run(ctx, tx, lock); err != nil {
				return err
			}
			held := next.lock
			if found, err = look(ctx, tx); err != nil {
				return err
			}
			if next = found.plan(); next.lock > held {
				return nil // it has changed meanwhile; another step will ask for the stronger lock
			}
		}
		return run(ctx, tx, next.statements...)
	})
}

// inTransaction makes the lock's patience that of the transaction, not of the session: a pooler may
// give that to somebody else.
func inTransaction(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	// What is looked at under the lock must not be of a snapshot from before it.
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of no effect after the commit
	patience := "SELECT set_config('lock_timeout', '" + strconv.FormatInt(lockWait.Milliseconds(), 10) + "', true)"
	if err := run(ctx, tx, patience); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func run(ctx context.Context, tx *sql.Tx, statements ...string) error {
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// plan is what can be done in one transaction.
type plan struct {
	statements []string
	lock       tableLock
	why        string // the first difference that it removes
	unsolved   []error
}

func (s *shape) plan() (p plan) {
	for _, d := range s.differences() {
		if len(d.fix) == 0 {
			p.unsolved = append(p.unsolved, errors.New(d.what))
			continue
		}
		if p.why == "" {
			p.why = d.what
		}
		p.statements = append(p.statements, d.fix...)
		p.lock = max(p.lock, d.lock)
	}
	return p
}

// lostRace reports whether err is of the kind that another attempt may not meet with: somebody else
// was creating the same, or had a lock.
func lostRace(err error) bool {
	switch sqlState(err) {
	case "23505", "42P07", "42710", // exists by now, as a row of the catalog, a table or another object
		"40P01", "40001", "55P03": // deadlock, serialization, lock_timeout
		return true
	}
	return false
}

// giveWay waits for those whose lock was in the way, for a time that differs between processes.
func giveWay(ctx context.Context) error {
	return pause.Sleep(ctx, pause.Jitter(50*time.Millisecond, 4))
}
