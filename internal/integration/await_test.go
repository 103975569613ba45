package integration_test

import (
	"database/sql"
	"testing"
	"time"
)

// await looks every few milliseconds whether what nobody announces has come about.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// awaitBlocked waits until somebody waits for a row of the leases.
func awaitBlocked(t *testing.T, db *sql.DB) {
	t.Helper()
	await(t, "a call to wait for a lock", func() bool {
		var blocked int
		err := db.QueryRowContext(t.Context(), `SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted
			AND pid IN (SELECT pid FROM pg_locks WHERE relation = 'worklease_leases'::regclass)`).Scan(&blocked)
		if err != nil {
			t.Fatal(err)
		}
		return blocked == 1
	})
}
