package pgtest_test

import (
	"testing"

	"github.com/aetomala/worklease/internal/pgtest"
)

func TestEachDriverSeesItsOwnSchema(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Open(t, driver, pgtest.Schema(t))
			// The same name in every schema: it only works if each has its own.
			if _, err := db.ExecContext(t.Context(), "CREATE TABLE thing (name text PRIMARY KEY)"); err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), "INSERT INTO thing VALUES ($1)", driver); err != nil {
				t.Fatal(err)
			}
			var got string
			if err := db.QueryRowContext(t.Context(), "SELECT name FROM thing").Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != driver {
				t.Errorf("read %q, want %q", got, driver)
			}
		})
	}
}

func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	name := func(dsn string) (name string) {
		if err := pgtest.Open(t, "pgx", dsn).QueryRowContext(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	if a, b := name(pgtest.Database(t)), name(pgtest.Database(t)); a == b {
		t.Errorf("two databases have the name %q", a)
	}
}
