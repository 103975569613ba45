package pgtest_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease/internal/pgtest"
)

func TestPrivateServerKeepsItsDataThroughEveryEnd(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t, "max_connections = 17")
	db := pgtest.Open(t, "pgx", p.DSN())
	if got := scan[string](t, db, "SHOW max_connections"); got != "17" {
		t.Errorf("max_connections is %s, want the 17 of the setting given", got)
	}
	if got := scan[string](t, db, "SHOW fsync"); got != "on" {
		t.Errorf("fsync is %s", got)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE ends (how text)"); err != nil {
		t.Fatal(err)
	}
	for i, end := range []struct {
		name string
		call func()
	}{{"stop", p.Stop}, {"stop immediate", p.StopImmediate}, {"kill", p.Kill}, {"restart", p.Restart}} {
		if _, err := db.ExecContext(t.Context(), "INSERT INTO ends VALUES ($1)", end.name); err != nil {
			t.Fatalf("before %s: %v", end.name, err)
		}
		end.call()
		if end.name != "restart" {
			if err := db.PingContext(t.Context()); err == nil {
				t.Fatalf("the server still answers after %s", end.name)
			}
			p.Start()
		}
		// The pool may hold connections to the server that was.
		await(t, "an answer after "+end.name, func() bool { return db.PingContext(t.Context()) == nil })
		if got := scan[int](t, db, "SELECT count(*) FROM ends"); got != i+1 {
			t.Errorf("%d rows after %s, want %d", got, end.name, i+1)
		}
	}
}

func TestKillWaitsForBusyBackends(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t)
	db, admin := pgtest.Open(t, "pq", p.DSN()), p.Admin(t)
	ended := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(context.Background(), "SELECT pg_sleep(600)")
		ended <- err
	}()
	await(t, "the statement to run", func() bool {
		if len(ended) != 0 {
			t.Fatalf("the statement has ended: %v", <-ended)
		}
		return scan[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 1
	})
	p.Kill()
	if err := <-ended; err == nil {
		t.Error("the statement has succeeded on a killed server")
	}
	p.Start()
	if !strings.Contains(p.Log(), "was interrupted") {
		t.Errorf("the log tells of no recovery:\n%s", p.Log())
	}
}

func scan[T any](t *testing.T, db *sql.DB, query string, args ...any) (value T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// await looks every few milliseconds whether what nobody announces has come about.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
