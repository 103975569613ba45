package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// schemaOf returns the schema of a DSN from pgtest.
func schemaOf(t testing.TB, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("search_path")
}

// newRole makes a role without rights but to the schema, and returns the DSN to log in as it.
func newRole(t testing.TB, dsn string, admin *sql.DB) (name, asRole string) {
	t.Helper()
	name, password := "r_"+strings.ToLower(rand.Text()), rand.Text()
	exec(t, admin, "CREATE ROLE "+name+" LOGIN PASSWORD '"+password+"'")
	exec(t, admin, "GRANT USAGE ON SCHEMA "+schemaOf(t, dsn)+" TO "+name)
	t.Cleanup(func() { exec(t, admin, "DROP OWNED BY "+name+"; DROP ROLE "+name) })
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, password)
	return name, u.String()
}

// has fails the test if err is nil or lacks one of the texts.
func has(t testing.TB, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q in it", err, text)
		}
	}
}

func TestMigrateWithoutArguments(t *testing.T) {
	t.Parallel()
	has(t, postgres.Migrate(t.Context(), nil), "postgres: migrate: the *sql.DB is nil")
	_, admin := oldTable(t, "")
	var none context.Context
	has(t, postgres.Migrate(none, admin), "postgres: migrate: the context is nil")
}

func TestMigrateFollowsTheSearchPath(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	admin := pgtest.Open(t, "pgx", dsn)
	exec(t, admin, `CREATE SCHEMA app; CREATE SCHEMA "We""ird 'x"`)
	on := func(path string) *sql.DB { return pgtest.Open(t, "pq", pgtest.WithParams(dsn, "search_path="+path)) }
	schemas := func(relation string) string {
		return strings.Join(lines(t, admin, "SELECT nspname FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace WHERE relname = '"+relation+"' ORDER BY 1"), ", ")
	}
	inSchemas := func(want string) {
		t.Helper()
		for _, relation := range []string{"worklease_leases", "worklease_fencing_seq"} {
			if got := schemas(relation); got != want {
				t.Errorf("%s is in schema %s, want %s", relation, got, want)
			}
		}
	}
	has(t, postgres.Migrate(t.Context(), on("nowhere")), "search_path names no schema")

	weird := on(`"We""ird 'x"`)
	migrate(t, weird)
	migrate(t, weird)
	inSchemas(`We"ird 'x`)
	exec(t, admin, `DROP SCHEMA "We""ird 'x" CASCADE`)

	// A table that is found further down the path is the one, and its sequence belongs beside it.
	fillOld(t, on("public"), "per_row_tokens")
	migrate(t, on("app,public"))
	inSchemas("public")

	// The other way round there would be two stores, of which each session sees one.
	fillOld(t, on("app"), "per_row_tokens")
	migrate(t, on("app,public"))
	inSchemas("app, public")

	exec(t, admin, "DROP TABLE app.worklease_leases")
	err := postgres.Migrate(t.Context(), on("app,public"))
	has(t, err, "leads to table public.worklease_leases, but to the sequence in schema app")
}

// What must not be guessed is reported, and the rest done.
func TestMigrateLeavesToPeopleWhatItMust(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, script, want, state string }{
		{"type", "ALTER TABLE worklease_leases ALTER expires_at TYPE timestamp", "column expires_at is of type timestamp without time zone", ""},
		{"unknown column", "ALTER TABLE worklease_leases ADD tenant INT; UPDATE worklease_leases SET tenant = 1; ALTER TABLE worklease_leases ALTER tenant SET NOT NULL",
			`column "tenant", which worklease does not know, is NOT NULL`, ""},
		{"no key", "ALTER TABLE worklease_leases DROP CONSTRAINT worklease_leases_pkey", "ADD PRIMARY KEY (work_id)", ""},
		{"another table", "ALTER TABLE worklease_leases DROP holder_id", "column holder_id is missing", ""},
		{"unheard-of exit", "ALTER TABLE worklease_leases ADD exit_mode TEXT; UPDATE worklease_leases SET exit_mode = 'handed on' WHERE work_id = 'lapsed'",
			"a row holds a value that the constraint does not allow", "23514"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, admin := oldTable(t, "clean_handoff")
			exec(t, admin, row.script)
			for range 2 {
				err := postgres.Migrate(t.Context(), admin)
				has(t, err, "postgres: migrate: ", row.want)
				if got := sqlState(err); got != row.state {
					t.Errorf("the SQLSTATE is %q, want %q", got, row.state)
				}
			}
			if n := len(lines(t, admin, "SELECT attname FROM pg_attribute WHERE attrelid = 'worklease_leases'::regclass AND attname IN ('clean_handoff', 'prev_holder_id')")); n != 1 {
				t.Error("the rest was not done")
			}
			sequenceIsAhead(t, admin)
		})
	}
	t.Run("view", func(t *testing.T) {
		t.Parallel()
		_, admin := oldTable(t, "")
		exec(t, admin, "CREATE VIEW worklease_leases AS SELECT 1 AS work_id")
		has(t, postgres.Migrate(t.Context(), admin), "no ordinary table")
	})
}

func TestMigrateKeepsChosenStorageParameters(t *testing.T) {
	t.Parallel()
	_, admin := oldTable(t, "clean_handoff")
	exec(t, admin, "ALTER TABLE worklease_leases SET (fillfactor = 50, autovacuum_enabled = off)")
	migrate(t, admin)
	got := definition(t, admin)
	for _, want := range []string{"option fillfactor=50\n", "option autovacuum_enabled=off\n", "option toast_tuple_target=256\n"} {
		if !strings.Contains(got+"\n", want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// An application's role may call Migrate at each start, once the owner has.
func TestMigrateAsARoleThatOwnsNothing(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pq", "pgx"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn, admin := oldTable(t, "")
			role, asRole := newRole(t, dsn, admin)
			db := pgtest.Open(t, driver, asRole)
			err := postgres.Migrate(t.Context(), db)
			has(t, err, "postgres: migrate: ", "the right to create them in the schema")
			if sqlState(err) != "42501" {
				t.Errorf("the driver's error is not in %v", err)
			}
			migrate(t, admin)
			exec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON worklease_leases TO "+role)
			exec(t, admin, "GRANT USAGE ON SEQUENCE worklease_fencing_seq TO "+role)
			migrate(t, db)
			exec(t, admin, "INSERT INTO worklease_leases (work_id, holder_id, expires_at) VALUES ('w', 'h', now()); ALTER SEQUENCE worklease_fencing_seq CACHE 2")
			err = postgres.Migrate(t.Context(), db)
			has(t, err, "it takes the owner of the table")
		})
	}
}

func TestMigrateWithSettingsThatItCannotRelyOn(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"default_transaction_isolation=serializable", "lock_timeout=1", "DateStyle=German", "standard_conforming_strings=off"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			dsn, admin := oldTable(t, "clean_handoff")
			migrate(t, pgtest.Open(t, "pgx", pgtest.WithParams(dsn, setting)))
			nothingLeft(t, admin)
		})
	}
}

func TestMigrateOfAReadOnlyServer(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pq", "pgx"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn, admin := oldTable(t, "clean_handoff")
			readOnly := pgtest.Open(t, driver, pgtest.WithParams(dsn, "default_transaction_read_only=on"))
			has(t, postgres.Migrate(t.Context(), readOnly), "the server is read-only")
			migrate(t, admin)
			migrate(t, readOnly)
		})
	}
}
