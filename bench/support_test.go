package bench

import (
	"context"
	"database/sql"
	"strconv"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// ttl is so long that no lease lapses.
const ttl = time.Hour

// roundLength is how long a turn takes unless something else is said.
const roundLength = 400 * time.Millisecond

// leasesEach is how many leases a client works on, one after another.
func leasesEach() int { return pick(25, 2) }

var drivers = []string{"pgx", "pq"}

// label is what a driver is called in a table.
var label = map[string]string{"pgx": "pgx", "pq": "lib/pq"}

// fixture is the store's table in a schema of its own, and a pool with a connection for each client.
type fixture struct {
	dsn   string
	db    *sql.DB
	store *postgres.Backend
}

func newFixture(t *testing.T, s *pgtest.Server, driver string, clients int, opts ...postgres.Option) *fixture {
	t.Helper()
	first := &fixture{dsn: s.Schema(t)}
	f := first.onSameTable(t, driver, clients, opts...)
	execute(t, f.db, postgres.Schema)
	return f
}

func (f *fixture) onSameTable(t *testing.T, driver string, clients int, opts ...postgres.Option) *fixture {
	t.Helper()
	db := open(t, driver, f.dsn, clients)
	store, err := postgres.New(db, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{dsn: f.dsn, db: db, store: store}
}

func open(t *testing.T, driver, dsn string, clients int) *sql.DB {
	t.Helper()
	db := pgtest.Open(t, driver, dsn)
	db.SetMaxOpenConns(clients)
	db.SetMaxIdleConns(clients)
	return db
}

// leases acquires leases, which are called "0", "1" and so on, and gives each a state.
func (f *fixture) leases(t *testing.T, n int, state []byte) []backend.LeaseRecord {
	t.Helper()
	records := make([]backend.LeaseRecord, n)
	for i := range records {
		record, err := f.store.Acquire(t.Context(), strconv.Itoa(i), "holder", ttl)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.store.Checkpoint(t.Context(), record, state, ttl); err != nil {
			t.Fatal(err)
		}
		records[i] = record
	}
	return records
}

// nth is the index of the lease that a client works on in its i-th operation.
func nth(client, i int) int { return client*leasesEach() + i%leasesEach() }

// renewAll renews the leases in turn, n times in all.
func (f *fixture) renewAll(t *testing.T, records []backend.LeaseRecord, n int) {
	t.Helper()
	for i := range n {
		if err := f.store.Renew(t.Context(), records[i%len(records)], ttl); err != nil {
			t.Fatal(err)
		}
	}
}

func execute(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func scan[T any](t *testing.T, db *sql.DB, query string, args ...any) (value T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func prepare(t *testing.T, db *sql.DB, query string) *sql.Stmt {
	t.Helper()
	stmt, err := db.PrepareContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	t.Cleanup(func() {
		if err := stmt.Close(); err != nil {
			t.Error(err)
		}
	})
	return stmt
}

// op is an operation that is measured. It is the i-th of this client, counted from 0.
type op func(ctx context.Context, client, i int) error
