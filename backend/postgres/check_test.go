package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// findings are what Check has joined.
func findings(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// faults are each one finding of Check.
var faults = []struct {
	name, script, setting string
	want                  string
}{
	{"no table", "DROP TABLE worklease_leases", "", "no table worklease_leases in search_path"},
	{"no sequence", "DROP SEQUENCE worklease_fencing_seq CASCADE; ALTER TABLE worklease_leases ALTER fencing_token SET DEFAULT 1", "", "no sequence"},
	{"behind", "INSERT INTO worklease_leases (work_id, holder_id, fencing_token, expires_at) VALUES ('w', 'h', 9, now())", "", "behind token 9 in the table: run Migrate"},
	{"cached", "ALTER SEQUENCE worklease_fencing_seq CACHE 7", "", "cache 7"},
	{"small", "ALTER SEQUENCE worklease_fencing_seq AS integer", "", "is of type integer"},
	{"cycle", "ALTER SEQUENCE worklease_fencing_seq CYCLE", "", "cycle true"},
	{"flag", "ALTER TABLE worklease_leases ADD clean_handoff BOOLEAN NOT NULL DEFAULT false", "", "column clean_handoff is of an older version: run Migrate"},
	{"no column", "ALTER TABLE worklease_leases DROP prev_holder_id", "", "column prev_holder_id is missing: run Migrate"},
	{"default", "ALTER TABLE worklease_leases ALTER fencing_token SET DEFAULT 1", "", `fencing_token has the default "1"`},
	{"no constraint", "ALTER TABLE worklease_leases DROP CONSTRAINT worklease_leases_exit_mode_check", "", "constraint worklease_leases_exit_mode_check is missing: run Migrate"},
	{"not validated", `ALTER TABLE worklease_leases DROP CONSTRAINT worklease_leases_exit_mode_check;
		ALTER TABLE worklease_leases ADD CONSTRAINT worklease_leases_exit_mode_check CHECK (exit_mode IN ('finished', 'abandoned', 'retired')) NOT VALID`, "",
		"is not validated: run Migrate"},
	{"type", "ALTER TABLE worklease_leases ALTER updated_at TYPE timestamp", "", "updated_at is of type timestamp without time zone, which must be"},
	{"no key", "ALTER TABLE worklease_leases DROP CONSTRAINT worklease_leases_pkey", "", "work_id is not unique"},
	{"read-only", "", "default_transaction_read_only=on", "transactions are read-only"},
	{"isolation", "", "default_transaction_isolation=repeatable read", "default_transaction_isolation is repeatable read"},
	{"standby", "CREATE FUNCTION pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'", "own", "the server is a standby"},
}

func TestCheckWithoutArguments(t *testing.T) {
	t.Parallel()
	has(t, postgres.Check(t.Context(), nil), "postgres: check: the *sql.DB is nil")
	_, admin := oldTable(t, "")
	var none context.Context
	has(t, postgres.Check(none, admin), "postgres: check: the context is nil")
}

func TestCheckFindsEachFault(t *testing.T) {
	t.Parallel()
	for i, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			dsn, admin := oldTable(t, "")
			migrate(t, admin)
			if err := postgres.Check(t.Context(), admin); err != nil {
				t.Fatalf("before: %v", err)
			}
			if fault.script != "" {
				exec(t, admin, fault.script)
			}
			switch fault.setting {
			case "":
			case "own": // the schema's functions go before the server's
				dsn = pgtest.WithParams(dsn, "search_path="+schemaOf(t, dsn)+",pg_catalog")
			default:
				dsn = pgtest.WithParams(dsn, fault.setting)
			}
			err := postgres.Check(t.Context(), pgtest.Open(t, []string{"pq", "pgx"}[i%2], dsn))
			found := findings(err)
			if len(found) == 0 {
				t.Fatal("found nothing")
			}
			has(t, found[0], "postgres: check: ", fault.want)
			if fault.name == "no sequence" { // without which the default is wrong as well
				found = found[1:]
			}
			if len(found) > 1 {
				t.Errorf("and moreover: %v", found[1:])
			}
		})
	}
}

func TestCheckFindsAllAtOnce(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn, admin := oldTable(t, "clean_handoff")
			role, asRole := newRole(t, dsn, admin)
			exec(t, admin, "GRANT SELECT ON worklease_leases, worklease_fencing_seq TO "+role)
			exec(t, admin, "ALTER ROLE "+role+" SET default_transaction_isolation = 'serializable'")
			exec(t, admin, "ALTER ROLE "+role+" SET default_transaction_read_only = on")
			schema := schemaOf(t, dsn)
			err := postgres.Check(t.Context(), pgtest.Open(t, driver, asRole))
			has(t, err,
				"transactions are read-only",
				"default_transaction_isolation is serializable",
				"GRANT INSERT, UPDATE, DELETE ON "+schema+".worklease_leases TO "+role,
				"GRANT USAGE ON SEQUENCE "+schema+".worklease_fencing_seq TO "+role,
				"is of type integer, increment 1, maximum 2147483647, cache 20",
				"behind token 70",
				"column exit_mode is missing",
				"column prev_exit_mode is missing",
				"column prev_holder_id is missing",
				"column clean_handoff is of an older version",
				"constraint worklease_leases_exit_mode_check is missing",
				"constraint worklease_leases_prev_exit_mode_check is missing")
			if n := len(findings(err)); n != 12 {
				t.Errorf("%d findings, want 12:\n%v", n, err)
			}
		})
	}
}

// The grants that Check asks for are all that the store needs, and all that Check does.
func TestCheckGrants(t *testing.T) {
	t.Parallel()
	dsn, admin := oldTable(t, "")
	migrate(t, admin)
	role, asRole := newRole(t, dsn, admin)
	db := pgtest.Open(t, "pq", asRole)
	for _, f := range findings(postgres.Check(t.Context(), db)) {
		_, grant, ok := strings.Cut(f.Error(), "GRANT ")
		if !ok {
			t.Fatalf("unexpected: %v", f)
		}
		exec(t, admin, "GRANT "+grant)
	}
	if err := postgres.Check(t.Context(), db); err != nil {
		t.Error(err)
	}
	store, err := postgres.New(db)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&tenures{store: store, holder: role}).turn(); err != nil {
		t.Error(err)
	}
	// Also for a role that may draw from the sequence, but not look at it; Check has drawn the 1.
	exec(t, admin, "ALTER SEQUENCE worklease_fencing_seq RESTART")
	has(t, postgres.Check(t.Context(), db), "behind token 2 in the table")
}

func TestCheckNamesTheSchemas(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	admin := pgtest.Open(t, "pgx", dsn)
	exec(t, admin, "CREATE SCHEMA jobs; CREATE SCHEMA other")
	migrate(t, pgtest.Open(t, "pgx", pgtest.WithParams(dsn, "search_path=jobs")))
	on := func(path string) *sql.DB { return pgtest.Open(t, "pgx", pgtest.WithParams(dsn, "search_path="+path)) }
	has(t, postgres.Check(t.Context(), on("other")), "in search_path other, which leads to schema other; there is one in schema jobs")
	has(t, postgres.Check(t.Context(), on("nowhere")), "which leads to no schema that exists")
	if err := postgres.Check(t.Context(), on("other,jobs")); err != nil {
		t.Error(err)
	}
}

// lib/pq asks for UTF8, whatever the server has for the session; pgx takes what there is.
func TestCheckOfTheClientsEncoding(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t)
	setDefaults(t, direct, "client_encoding = 'LATIN1'")
	ascii := database(t, "LOCALE 'C'", "SQL_ASCII")
	for _, dsn := range []string{direct, ascii} {
		migrate(t, pgtest.Open(t, "pq", dsn))
	}
	bounced := pgtest.NewBouncer(t, direct)
	for _, row := range []struct{ name, driver, dsn, want string }{
		{"pgx", "pgx", direct, "client_encoding is LATIN1"},
		{"pgx-exec behind PgBouncer", "pgx-exec", bounced, "client_encoding is LATIN1"},
		{"pgx on SQL_ASCII", "pgx", ascii, ""},
		{"pq", "pq", direct, ""},
		{"pq-binary behind PgBouncer", "pq-binary", bounced, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			check := func(dsn string) error {
				return postgres.Check(t.Context(), pgtest.Open(t, row.driver, dsn), postgres.WithoutPrepare())
			}
			err := check(row.dsn)
			if row.want != "" {
				has(t, err, row.want, "client_encoding=UTF8")
				err = check(pgtest.WithParams(row.dsn, "client_encoding=UTF8"))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCheckIsSilentAboutWhatDoesNoHarm(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn, admin := oldTable(t, "")
			exec(t, admin, postgres.Schema)
			exec(t, admin, `
				CREATE INDEX idx_worklease_leases_updated_at ON worklease_leases (updated_at);
				ALTER TABLE worklease_leases RESET (fillfactor), ADD note TEXT`)
			before := physical(t, admin)
			if err := postgres.Check(t.Context(), pgtest.Open(t, driver, dsn), postgres.WithoutPrepare()); err != nil {
				t.Error(err)
			}
			if after := physical(t, admin); after != before {
				t.Errorf("changed %s to %s", before, after)
			}
		})
	}
}

func TestCheckWithFewConnections(t *testing.T) {
	t.Parallel()
	for limit := 1; limit <= 3; limit++ {
		dsn, admin := oldTable(t, "")
		migrate(t, admin)
		db := pgtest.Open(t, "pgx", dsn)
		db.SetMaxOpenConns(limit)
		if err := postgres.Check(within(t, 20*time.Second), db); err != nil {
			t.Errorf("with %d: %v", limit, err)
		}
		if limit == 1 {
			continue
		}
		busy, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := postgres.Check(within(t, 20*time.Second), db); err != nil {
			t.Errorf("with %d, of which one is busy: %v", limit, err)
		}
		if err := busy.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCheckKeepsTheDriversError(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, driver := range []string{"pq", "pgx"} {
		db := pgtest.Open(t, driver, "postgres://u:p@"+address+"/d?sslmode=disable")
		for what, err := range map[string]error{"Check": postgres.Check(t.Context(), db), "Migrate": postgres.Migrate(t.Context(), db)} {
			if _, ok := errors.AsType[*net.OpError](err); !ok || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, %s: want one *net.OpError, got %v", driver, what, err)
			}
		}
	}
}

func TestCheckEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dsn, admin := oldTable(t, "")
	migrate(t, admin)
	tx := beginTx(t, admin)
	exec(t, tx, "LOCK TABLE worklease_leases")
	for _, driver := range []string{"pq", "pgx"} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- postgres.Check(ctx, pgtest.Open(t, driver, dsn)) }()
		waiting(t, admin)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", driver, err)
		}
		if err := postgres.Check(ctx, admin); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v with a context that had ended before", err)
		}
	}
}
