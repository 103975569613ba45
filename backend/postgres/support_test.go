package postgres_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

func createTable(t testing.TB, db *sql.DB) {
	t.Helper()
	if _, err := db.Exec(postgres.Schema); err != nil {
		t.Fatal(err)
	}
}

// fixture is a table of its own with a pool of the store's and one of the test's.
type fixture struct {
	dsn   string
	db    *sql.DB // the store's
	admin *sql.DB
	store *postgres.Backend
	opts  []postgres.Option
}

func newFixture(t testing.TB, driver string, opts ...postgres.Option) *fixture {
	t.Helper()
	return newFixtureAt(t, driver, pgtest.Schema(t), opts...)
}

func newFixtureAt(t testing.TB, driver, dsn string, opts ...postgres.Option) *fixture {
	t.Helper()
	f := &fixture{dsn: dsn, opts: opts}
	f.admin = pgtest.Open(t, "pgx", f.dsn)
	createTable(t, f.admin)
	f.use(t, pgtest.Open(t, driver, f.dsn))
	return f
}

// reopen gives the store a pool with other settings for its sessions.
func (f *fixture) reopen(t testing.TB, driver string, params ...string) {
	t.Helper()
	f.use(t, pgtest.Open(t, driver, pgtest.WithParams(f.dsn, params...)))
}

func (f *fixture) use(t testing.TB, db *sql.DB) {
	t.Helper()
	store, err := postgres.New(db, f.opts...)
	if err != nil {
		t.Fatal(err)
	}
	f.db, f.store = db, store
}

// eachDriver runs a test on lib/pq and on pgx.
func eachDriver(t *testing.T, test func(t *testing.T, driver string)) {
	for _, driver := range []string{"pq", "pgx"} {
		t.Run(driver, func(t *testing.T) { test(t, driver) })
	}
}

func acquire(t testing.TB, b backend.Backend, workID, holderID string, ttl time.Duration) backend.LeaseRecord {
	t.Helper()
	record, err := b.Acquire(t.Context(), workID, holderID, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func exec(t testing.TB, db interface {
	Exec(string, ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func scan[T any](t testing.TB, db interface {
	QueryRow(string, ...any) *sql.Row
}, query string, args ...any) (value T) {
	t.Helper()
	if err := db.QueryRow(query, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func currentSchema(t testing.TB, db *sql.DB) string {
	t.Helper()
	return scan[string](t, db, "SELECT current_schema()")
}

// await waits for what another process is to do.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// awaitBlocked waits until n statements of this fixture's schema wait for a lock.
func (f *fixture) awaitBlocked(t testing.TB, n int) {
	t.Helper()
	await(t, "a statement to block", func() bool { return f.blocked(t) >= n })
}

func (f *fixture) blocked(t testing.TB) int {
	t.Helper()
	return scan[int](t, f.admin, `SELECT count(DISTINCT l.pid) FROM pg_locks AS l JOIN pg_locks AS mine USING (pid)
		WHERE NOT l.granted AND mine.relation = 'worklease_leases'::regclass`)
}

func mustMatch(t testing.TB, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error %v does not match %v", err, target)
		}
	}
}

func mustNotMatch(t testing.TB, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Errorf("error %v matches %v", err, target)
		}
	}
}
