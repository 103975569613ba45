package proof

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/model"
	"github.com/aetomala/worklease/internal/pgtest"
)

// table is the store's table in a schema of its own, and an administrator's way to it.
type table struct {
	store *postgres.Backend
	admin *sql.DB
}

func newTable(tb testing.TB, driver, dsn string) *table {
	tb.Helper()
	admin := pgtest.Open(tb, "pgx", dsn)
	execute(tb, admin, postgres.Schema)
	store, err := postgres.New(pgtest.Open(tb, driver, dsn))
	if err != nil {
		tb.Fatal(err)
	}
	return &table{store: store, admin: admin}
}

func execute(tb testing.TB, db *sql.DB, query string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
}

// Rows implements [model.Reader].
func (t *table) Rows(ctx context.Context) (_ map[string]model.Row, err error) {
	stored, err := t.admin.QueryContext(ctx, `
		SELECT work_id, holder_id, fencing_token, expires_at, checkpoint, coalesce(exit_mode, 'none'),
			prev_exit_mode, coalesce(prev_holder_id, ''), updated_at, checkpoint = '' FROM worklease_leases`)
	if err != nil {
		return nil, err
	}
	defer stored.Close()
	rows := make(map[string]model.Row)
	for stored.Next() {
		var (
			workID, exit, prevExit string
			row                    model.Row
			state                  []byte
			empty                  sql.NullBool
		)
		err := stored.Scan(&workID, &row.HolderID, &row.Token, &row.ExpiresAt, &state, &exit,
			&prevExit, &row.PrevHolderID, &row.UpdatedAt, &empty)
		if err != nil {
			return nil, err
		}
		if empty.Bool {
			return nil, fmt.Errorf("the row of %q has an empty state instead of none", workID)
		}
		row.State, row.Exit, row.PrevExit = string(state), exits[exit], exits[prevExit]
		rows[workID] = row
	}
	return rows, stored.Err()
}

var exits = map[string]backend.ExitMode{
	"none":      backend.ExitNone,
	"finished":  backend.ExitFinished,
	"abandoned": backend.ExitAbandoned,
	"retired":   backend.ExitRetired,
	"expired":   backend.ExitExpired,
}

// clear makes the table ready for the next sequence. Tokens go on.
func (t *table) clear(ctx context.Context) error {
	_, err := t.admin.ExecContext(ctx, "DELETE FROM worklease_leases")
	return err
}

// stoppedWorld is a PostgreSQL store that reads a clock which stands still until it is moved.
type stoppedWorld struct {
	*table
	now time.Time
}

func newStoppedWorld(tb testing.TB, driver string) *stoppedWorld {
	tb.Helper()
	dsn := pgtest.Schema(tb)
	setUp := pgtest.Open(tb, "pgx", dsn)
	var schema string
	if err := setUp.QueryRow("SELECT current_schema()").Scan(&schema); err != nil {
		tb.Fatal(err)
	}
	execute(tb, setUp, "CREATE TABLE clock AS SELECT $1::timestamptz AS now", epoch)
	execute(tb, setUp, "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT now FROM clock'")
	w := &stoppedWorld{table: newTable(tb, driver, pgtest.WithParams(dsn, "search_path="+schema+",pg_catalog")), now: epoch}

	record, err := w.store.Acquire(tb.Context(), "work", "holder", time.Minute)
	if err != nil || !record.ExpiresAt.Equal(epoch.Add(time.Minute)) {
		tb.Fatalf("the store does not read the clock of the test: its record is %+v, %v", record, err)
	}
	return w
}

// restart begins a sequence.
func (w *stoppedWorld) restart(ctx context.Context) (model.Config, error) {
	if err := w.clear(ctx); err != nil {
		return model.Config{}, err
	}
	err := w.Advance(ctx, epoch.Sub(w.now))
	return model.Config{Backend: w.store, Clock: w, Rows: w, Resolution: time.Microsecond}, err
}

func (w *stoppedWorld) Now(context.Context) (time.Time, error) { return w.now, nil }

func (w *stoppedWorld) Advance(ctx context.Context, d time.Duration) error {
	now := w.now.Add(d).Round(time.Microsecond)
	if _, err := w.admin.ExecContext(ctx, "UPDATE clock SET now = $1", now); err != nil {
		return err
	}
	w.now = now
	return nil
}

// runningWorld is a PostgreSQL store with the server's clock. Instead of that, the rows move.
type runningWorld struct {
	*table
	ahead time.Duration // by how much the clock would be ahead had it been moved
}

func newRunningWorld(tb testing.TB, driver string) *runningWorld {
	tb.Helper()
	return &runningWorld{table: newTable(tb, driver, pgtest.Schema(tb))}
}

func (w *runningWorld) restart(ctx context.Context) (model.Config, error) {
	w.ahead = 0
	return model.Config{Backend: aheadOf{w.store, w}, Clock: w, Rows: w, Resolution: time.Microsecond}, w.clear(ctx)
}

func (w *runningWorld) Now(ctx context.Context) (now time.Time, err error) {
	err = w.admin.QueryRowContext(ctx, "SELECT clock_timestamp()").Scan(&now)
	return now.Add(w.ahead), err
}

func (w *runningWorld) Advance(ctx context.Context, d time.Duration) error {
	d = d.Truncate(time.Microsecond)
	_, err := w.admin.ExecContext(ctx, `UPDATE worklease_leases SET
		expires_at = expires_at - $1::bigint * interval '1 microsecond',
		updated_at = updated_at - $1::bigint * interval '1 microsecond'`, d.Microseconds())
	if err == nil {
		w.ahead += d
	}
	return err
}

func (w *runningWorld) Rows(ctx context.Context) (map[string]model.Row, error) {
	rows, err := w.table.Rows(ctx)
	for workID, row := range rows {
		row.ExpiresAt, row.UpdatedAt = row.ExpiresAt.Add(w.ahead), row.UpdatedAt.Add(w.ahead)
		rows[workID] = row
	}
	return rows, err
}

// aheadOf translates what the store says of instants into the time of the world.
type aheadOf struct {
	backend.Backend
	world *runningWorld
}

func (b aheadOf) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	record, err := b.Backend.Acquire(ctx, workID, holderID, ttl)
	if held, ok := asHeld(err); ok {
		translated := *held
		translated.ExpiresAt = held.ExpiresAt.Add(b.world.ahead)
		return record, &translated
	}
	if err == nil {
		record.ExpiresAt = record.ExpiresAt.Add(b.world.ahead)
	}
	return record, err
}
