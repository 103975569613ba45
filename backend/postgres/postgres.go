// Package postgres keeps leases in a PostgreSQL table, for any number of processes.
//
// It works through any database/sql driver, which the program registers and opens, and in whatever
// schema the connection's search_path finds the table: [Schema] is its definition, [Migrate] creates
// it or brings an older one up to date, and [Check] says at start-up what would fail later.
//
// Each operation is one statement and one round trip. A Checkpoint, Renew, Release or Forget that is
// refused needs a second statement to find out why, and so does now and then the Acquire of a work ID
// that has no row yet, to draw its token; a Sweep is one for each 1,000 rows. The optional capabilities
// are one statement each too: Backend has all of them, [backend.Waker] with [WithListener]. All time is
// the server's clock. READ COMMITTED, the server's default, is required: under a stricter one, contended calls may
// fail with SQLSTATE 40001. client_encoding must be UTF8, or the same ID from two programs may be two:
// lib/pq sees to it, pgx takes what the server has for the session, and [Check] tells.
//
// Renewal must get a connection when it needs one: give the store a *sql.DB of its own, or leave room
// in the one that the work uses.
package postgres

import (
	"database/sql"
	"errors"
	"sync/atomic"

	"github.com/aetomala/worklease/internal/prompt"
	"github.com/aetomala/worklease/internal/wake"
)

// Backend is a store in PostgreSQL. It is safe for concurrent use.
type Backend struct {
	db       *sql.DB
	prepared *statements // nil: nothing is prepared
	calls    prompt.Calls
	queues   queues                 // for rows that a caller's transaction may have locked
	dropping atomic.Bool            // idle connections are being dropped, or were a moment ago
	sweptTo  atomic.Pointer[string] // where the last sweep was cut short, if it was
	ear      *wake.Ear              // nil: nobody is told of anything
}

// Option configures a Backend.
type Option func(*Backend)

// WithoutPrepare makes the store send each statement as a whole, every time. By default it prepares
// them once on each connection, which is about twice as fast and which a pooler in transaction mode
// must know of: PgBouncer does from 1.21 on, with max_prepared_statements above zero.
//
// With lib/pq the connection string then needs binary_parameters=yes, with pgx
// default_query_exec_mode=exec, cache_describe or simple_protocol.
func WithoutPrepare() Option {
	return func(b *Backend) { b.prepared = nil }
}

// New returns a store that uses db, which stays the caller's to close. It sends nothing yet. A nil db
// is an error; nil options are ignored.
func New(db *sql.DB, opts ...Option) (*Backend, error) {
	if db == nil {
		return nil, errors.New("postgres: new: the *sql.DB is nil")
	}
	b := &Backend{db: db, prepared: new(statements)}
	for _, opt := range opts {
		if opt != nil {
			opt(b)
		}
	}
	return b, nil
}
