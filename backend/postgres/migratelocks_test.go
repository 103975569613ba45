package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// within is a context for a call that must not wait for longer.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func beginTx(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// waiting waits until a session waits for a lock on this schema's table.
func waiting(t *testing.T, db *sql.DB) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		if scan[bool](t, db, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'worklease_leases'::regclass)") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for the table")
		}
	}
}

func TestMigrateOfWhatIsUpToDateTakesNoLock(t *testing.T) {
	t.Parallel()
	dsn, admin := oldTable(t, "")
	migrate(t, admin)
	exec(t, admin, "INSERT INTO worklease_leases (work_id, holder_id, expires_at) VALUES ('w', 'h', now())")
	before := physical(t, admin)
	tx := beginTx(t, admin)
	// SHARE UPDATE EXCLUSIVE is what even the mildest change would want, and what conflicts with itself.
	exec(t, tx, "LOCK TABLE worklease_leases IN ROW EXCLUSIVE MODE; LOCK TABLE worklease_leases IN SHARE UPDATE EXCLUSIVE MODE")
	for _, driver := range []string{"pq", "pgx"} {
		if err := postgres.Migrate(within(t, 20*time.Second), pgtest.Open(t, driver, dsn)); err != nil {
			t.Errorf("%s: %v", driver, err)
		}
	}
	if after := physical(t, admin); after != before {
		t.Errorf("changed %s to %s", before, after)
	}
}

func TestMildChangesDoNotWaitForWriters(t *testing.T) {
	t.Parallel()
	_, admin := oldTable(t, "")
	migrate(t, admin)
	exec(t, admin, `ALTER TABLE worklease_leases RESET (fillfactor);
		ALTER TABLE worklease_leases DROP CONSTRAINT worklease_leases_exit_mode_check;
		ALTER TABLE worklease_leases ADD CONSTRAINT worklease_leases_exit_mode_check CHECK (exit_mode IN ('finished', 'abandoned', 'retired')) NOT VALID`)
	tx := beginTx(t, admin)
	exec(t, tx, "INSERT INTO worklease_leases (work_id, holder_id, expires_at) VALUES ('w', 'h', now())")
	if err := postgres.Migrate(within(t, 20*time.Second), admin); err != nil {
		t.Error(err)
	}
	nothingLeft(t, admin)
}

// A forgotten transaction holds Migrate up. It must not hold up the holders as well, by way of a lock
// request that stands in their way.
func TestMigrateLetsHoldersPassWhileItWaits(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pq", "pgx"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn, admin := oldTable(t, "exits_beside_clean_handoff")
			store, err := postgres.New(admin)
			if err != nil {
				t.Fatal(err)
			}
			record, err := store.Acquire(t.Context(), "held", "holder", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			tx := beginTx(t, admin)
			exec(t, tx, "SELECT FROM worklease_leases")
			done := make(chan error, 1)
			go func() { done <- postgres.Migrate(within(t, time.Minute), pgtest.Open(t, driver, dsn)) }()
			waiting(t, admin)
			if err := store.Renew(within(t, 20*time.Second), record, time.Minute); err != nil {
				t.Error(err)
			}
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			nothingLeft(t, admin)
		})
	}
}

func TestMigrateEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pq", "pgx"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn, admin := oldTable(t, "per_row_tokens")
			tx := beginTx(t, admin)
			exec(t, tx, "SELECT FROM worklease_leases")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- postgres.Migrate(ctx, pgtest.Open(t, driver, dsn)) }()
			waiting(t, admin)
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if scan[bool](t, admin, "SELECT to_regclass('worklease_fencing_seq') IS NOT NULL") {
				t.Error("half of it is there")
			}
			migrate(t, admin)
		})
	}
}

// Values that sessions were given in advance must not come out after Migrate.
func TestMigrateVoidsCachedTokens(t *testing.T) {
	t.Parallel()
	_, admin := oldTable(t, "clean_handoff")
	session, err := admin.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	draw := func() (token int64) {
		if err := session.QueryRowContext(t.Context(), "SELECT nextval('worklease_fencing_seq')").Scan(&token); err != nil {
			t.Fatal(err)
		}
		return token
	}
	if got := draw(); got != 1 {
		t.Fatalf("drew %d", got)
	}
	migrate(t, admin)
	if got := draw(); got <= 70 {
		t.Errorf("drew %d, with 70 in the table", got)
	}
}

func TestMigrateNeverSetsTheSequenceBack(t *testing.T) {
	t.Parallel()
	_, admin := oldTable(t, "exits_beside_clean_handoff")
	migrate(t, admin)
	if got := scan[int64](t, admin, "SELECT nextval('worklease_fencing_seq')"); got != 1001 {
		t.Errorf("the next token is %d, want the 1001 that was next before", got)
	}
}

// A restore that forgot the sequence, or a switch to a logical replica.
func TestTokensRiseAfterTheSequenceWasReset(t *testing.T) {
	t.Parallel()
	_, admin := oldTable(t, "")
	migrate(t, admin)
	store, err := postgres.New(admin)
	if err != nil {
		t.Fatal(err)
	}
	acquire := func(workID string) uint64 {
		record, err := store.Acquire(t.Context(), workID, "holder", time.Minute)
		if err == nil {
			err = store.Release(t.Context(), record, backend.ExitFinished)
		}
		if err != nil {
			t.Fatal(err)
		}
		return record.FencingToken
	}
	exec(t, admin, "SELECT setval('worklease_fencing_seq', 41)")
	first, other := acquire("w"), acquire("other")
	exec(t, admin, "ALTER SEQUENCE worklease_fencing_seq RESTART")
	if second := acquire("w"); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	migrate(t, admin)
	if third := acquire("w"); third <= other {
		t.Errorf("token %d after %d of another work ID", third, other)
	}
}

// An acquisition under way may hold a token that nobody sees yet.
func TestMigrateWaitsForTokensUnderWay(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			dsn, admin := oldTable(t, "")
			migrate(t, admin)
			const insert = "INSERT INTO worklease_leases (work_id, holder_id, fencing_token, expires_at) VALUES ($1, 'holder', $2, now())"
			exec(t, admin, insert, "w", 50)
			tx := beginTx(t, admin)
			exec(t, tx, insert, "under way", 90)
			db := pgtest.Open(t, "pq", pgtest.WithParams(dsn, "default_transaction_isolation="+isolation))
			done := make(chan error, 1)
			go func() { done <- postgres.Migrate(within(t, time.Minute), db) }()
			waiting(t, admin)
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if got := scan[int64](t, admin, "SELECT last_value FROM worklease_fencing_seq"); got != 90 {
				t.Errorf("the sequence is at %d, want 90", got)
			}
		})
	}
}
