package postgres_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// columns returns the row of w, by column.
func (f *fixture) columns(t testing.TB) map[string]any {
	t.Helper()
	var row map[string]any
	text := scan[[]byte](t, f.admin, "SELECT to_jsonb(l) || jsonb_build_object('xmin', xmin::text) FROM worklease_leases AS l WHERE work_id = 'w'")
	if err := json.Unmarshal(text, &row); err != nil {
		t.Fatal(err)
	}
	return row
}

func TestOperationWritesTheColumnsOfItsOwnOnly(t *testing.T) {
	for name, c := range map[string]struct {
		call func(f *fixture, record backend.LeaseRecord) error
		want string
	}{
		"renew": {func(f *fixture, r backend.LeaseRecord) error {
			return f.store.Renew(t.Context(), r, time.Hour)
		}, "expires_at xmin"},
		"checkpoint": {func(f *fixture, r backend.LeaseRecord) error {
			return f.store.Checkpoint(t.Context(), r, []byte("other"), time.Hour)
		}, "checkpoint expires_at updated_at xmin"},
		"release": {func(f *fixture, r backend.LeaseRecord) error {
			return f.store.Release(t.Context(), r, backend.ExitAbandoned)
		}, "exit_mode expires_at updated_at xmin"},
		"read": {func(f *fixture, r backend.LeaseRecord) error {
			_, err := f.store.ReadCheckpoint(t.Context(), r)
			return err
		}, ""},
		"take over": {func(f *fixture, r backend.LeaseRecord) error {
			exec(t, f.admin, "UPDATE worklease_leases SET expires_at = now()")
			_, err := f.store.Acquire(t.Context(), "w", "c", time.Hour)
			return err
		}, "acquired_at expires_at fencing_token holder_id prev_exit_mode prev_holder_id updated_at xmin"},
		"fenced": {func(f *fixture, r backend.LeaseRecord) error {
			r.FencingToken--
			err := f.store.Renew(t.Context(), r, time.Hour)
			mustMatch(t, err, backend.ErrFenced)
			mustMatch(t, f.store.Checkpoint(t.Context(), r, nil, time.Hour), backend.ErrFenced)
			mustMatch(t, f.store.Release(t.Context(), r, backend.ExitFinished), backend.ErrFenced)
			mustMatch(t, f.store.Forget(t.Context(), r), backend.ErrFenced)
			return nil
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "pgx")
			first := acquire(t, f.store, "w", "a", time.Minute)
			if err := f.store.Release(t.Context(), first, backend.ExitFinished); err != nil {
				t.Fatal(err)
			}
			record := acquire(t, f.store, "w", "b", time.Minute)
			if err := f.store.Checkpoint(t.Context(), record, []byte("state"), time.Minute); err != nil {
				t.Fatal(err)
			}
			before := f.columns(t)
			if err := c.call(f, record); err != nil {
				t.Fatal(err)
			}
			var changed []string
			for column, value := range f.columns(t) {
				if value != before[column] {
					changed = append(changed, column)
				}
			}
			slices.Sort(changed)
			if got := strings.Join(changed, " "); got != c.want {
				t.Errorf("writes %q, want %q", got, c.want)
			}
		})
	}
}

// everyWay runs a test on each driver in each of its modes, prepared and not.
func everyWay(t *testing.T, test func(t *testing.T, f *fixture)) {
	for _, driver := range pgtest.Drivers() {
		for name, opts := range map[string][]postgres.Option{
			driver: nil, driver + " without prepared statements": {postgres.WithoutPrepare()},
		} {
			t.Run(name, func(t *testing.T) { test(t, newFixture(t, driver, opts...)) })
		}
	}
}

func TestStateIsStoredAsItIsAndNoStateAsNull(t *testing.T) {
	everyWay(t, func(t *testing.T, f *fixture) {
		record := acquire(t, f.store, "w", "a", time.Minute)
		for _, state := range [][]byte{
			{0x00, 0x01, 0xff, 0x5c}, nil, []byte(`\x00`), {}, []byte("it's $1, \\000 and ''"), {0x5c, 0x5c, 0x27, 0x00}, {},
		} {
			if err := f.store.Checkpoint(t.Context(), record, state, time.Minute); err != nil {
				t.Fatal(err)
			}
			var stored []byte
			var isNull bool
			if err := f.admin.QueryRow("SELECT checkpoint, checkpoint IS NULL FROM worklease_leases").Scan(&stored, &isNull); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(stored, state) || isNull != (len(state) == 0) {
				t.Errorf("%x is stored as %x, null: %t", state, stored, isNull)
			}
			found, err := f.store.ReadCheckpoint(t.Context(), record)
			if err != nil || !bytes.Equal(found.State, state) || (found.State == nil) != isNull {
				t.Errorf("%x is read as %#v, %v", state, found.State, err)
			}
		}
	})
}

func TestExitsAreStoredByNameAndOthersRefused(t *testing.T) {
	f := newFixture(t, "pgx")
	for _, mode := range []backend.ExitMode{backend.ExitFinished, backend.ExitAbandoned, backend.ExitRetired} {
		record := acquire(t, f.store, "w", "a", time.Minute)
		if exit := scan[sql.NullString](t, f.admin, "SELECT exit_mode FROM worklease_leases"); exit.Valid {
			t.Errorf("the exit is %q while the lease is held", exit.String)
		}
		if err := f.store.Release(t.Context(), record, mode); err != nil {
			t.Fatal(err)
		}
		if exit := scan[string](t, f.admin, "SELECT exit_mode FROM worklease_leases"); exit != mode.String() {
			t.Errorf("%v is stored as %q", mode, exit)
		}
	}
	for _, column := range []string{"exit_mode", "prev_exit_mode"} {
		if _, err := f.admin.Exec("UPDATE worklease_leases SET " + column + " = 'vanished'"); kind(err) != "23514" {
			t.Errorf("%s = vanished: %v", column, err)
		}
	}
	// What a later version may have stored is not taken for anything known.
	exec(t, f.admin, "ALTER TABLE worklease_leases DROP CONSTRAINT worklease_leases_prev_exit_mode_check")
	record := acquire(t, f.store, "w", "b", time.Minute)
	exec(t, f.admin, "UPDATE worklease_leases SET prev_exit_mode = 'vanished'")
	if found, err := f.store.ReadCheckpoint(t.Context(), record); err == nil || !strings.Contains(err.Error(), "vanished") {
		t.Errorf("read %+v, %v", found, err)
	}
}

func TestTokenBeyondTheColumnIsFenced(t *testing.T) {
	f := newFixture(t, "pgx")
	record := acquire(t, f.store, "w", "a", time.Minute)
	exec(t, f.admin, "UPDATE worklease_leases SET fencing_token = $1", int64(math.MaxInt64))
	for _, token := range []uint64{1 << 63, math.MaxUint64} {
		record.FencingToken = token
		_, readErr := f.store.ReadCheckpoint(t.Context(), record)
		for _, err := range []error{
			readErr,
			f.store.Renew(t.Context(), record, time.Minute),
			f.store.Checkpoint(t.Context(), record, nil, time.Minute),
			f.store.Release(t.Context(), record, backend.ExitFinished),
			f.store.Forget(t.Context(), record),
		} {
			mustMatch(t, err, backend.ErrFenced)
		}
	}
	record.FencingToken = math.MaxInt64
	if err := f.store.Renew(t.Context(), record, time.Minute); err != nil {
		t.Errorf("the greatest token there is: %v", err)
	}
}

func TestTTLIsRoundedUpToMicroseconds(t *testing.T) {
	f := newFixture(t, "pgx")
	// With clock_timestamp() standing still, the expiry shows what was added to it.
	exec(t, f.admin, "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT timestamptz '2020-01-01' $$")
	f.db = pgtest.Open(t, "pgx", pgtest.WithParams(f.dsn, "search_path="+currentSchema(t, f.admin)+",pg_catalog"))
	store, err := postgres.New(f.db)
	if err != nil {
		t.Fatal(err)
	}
	for ttl, want := range map[time.Duration]int64{
		1: 1, 1000: 1, 1500: 2, time.Second - 1: 1e6, time.Second + 1: 1e6 + 1,
		0: 0, -1: 0, -1500: -1, -time.Hour: -3600e6, math.MaxInt64: math.MaxInt64/1000 + 1,
	} {
		work := fmt.Sprint(int64(ttl))
		record, err := store.Acquire(t.Context(), work, "a", ttl)
		if err != nil {
			t.Errorf("%v: %v", ttl, err)
			continue
		}
		got := scan[int64](t, f.admin, `SELECT (extract(epoch FROM expires_at - timestamptz '2020-01-01') * 1000000)::bigint
			FROM worklease_leases WHERE work_id = $1`, work)
		if got != want {
			t.Errorf("%v is stored as %d µs, want %d", ttl, got, want)
		}
		if start := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC); record.ExpiresAt.UnixMicro()-start.UnixMicro() != want {
			t.Errorf("%v is said to be %d µs", ttl, record.ExpiresAt.UnixMicro()-start.UnixMicro())
		}
	}
}

// IDs that a language-aware comparison, or a careless one, takes for the same.
var lookalikes = []string{
	"work", "Work", "WORK", "wörk", "wo\u0308rk", "work ", " work", "work\t", "wo-rk", "wo\u00adrk", "w\u200bork", "ｗork", "work\u0301", "wоrk", "1", "01", "１",
}

func TestIDsAreToldApartByteByByteInEveryDatabase(t *testing.T) {
	locales := map[string]string{"C": "LOCALE 'C'"}
	if server := pgtest.Start(t); server.Version() >= 15 {
		// Compares letters only: as loosely as the default of a database can.
		locales["ICU"] = "LOCALE 'C' LOCALE_PROVIDER icu ICU_LOCALE 'en-US-u-ks-level1-ka-shifted'"
	}
	for name, locale := range locales {
		t.Run(name, func(t *testing.T) {
			f := newFixtureAt(t, "pgx", database(t, locale, "UTF8"))
			var records []backend.LeaseRecord
			for _, id := range lookalikes {
				records = append(records, acquire(t, f.store, id, id, time.Hour))
			}
			for _, record := range records {
				if err := f.store.Renew(t.Context(), record, time.Hour); err != nil {
					t.Errorf("renewing %q: %v", record.WorkID, err)
				}
				for _, id := range lookalikes {
					if id == record.WorkID {
						continue
					}
					otherWork, otherHolder := record, record
					otherWork.WorkID, otherHolder.HolderID = id, id
					for _, wrong := range []backend.LeaseRecord{otherWork, otherHolder} {
						_, err := f.store.ReadCheckpoint(t.Context(), wrong)
						mustMatch(t, err, backend.ErrFenced)
						mustMatch(t, f.store.Renew(t.Context(), wrong, time.Hour), backend.ErrFenced)
					}
				}
			}
			// A sweep walks the table in the order of the database's locale, and misses nothing.
			exec(t, f.admin, `UPDATE worklease_leases SET exit_mode = 'retired', expires_at = now() - interval '1 h', updated_at = now() - interval '1 h'`)
			exec(t, f.admin, `INSERT INTO worklease_leases (work_id, holder_id, expires_at, exit_mode, updated_at)
				SELECT translate(md5(n::text), '0123', 'aAäÄ'), 'a', now() - interval '1 h', 'retired', now() - interval '1 h'
				FROM generate_series(1, 2500) AS n`)
			all := scan[int64](t, f.admin, "SELECT count(*) FROM worklease_leases")
			if n, err := f.store.Sweep(t.Context(), backend.SweepOptions{}); err != nil || n != all || all < 2500 {
				t.Errorf("swept %d of %d, %v", n, all, err)
			}
		})
	}
}

// database is pgtest.Database with a locale and an encoding of its own.
func database(t testing.TB, locale, encoding string) string {
	t.Helper()
	admin := pgtest.Start(t).Admin(t)
	name := fmt.Sprintf("locale_%d", time.Now().UnixNano())
	exec(t, admin, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING '"+encoding+"' "+locale)
	t.Cleanup(func() { exec(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	return strings.Replace(pgtest.Start(t).DSN(), "/postgres?", "/"+name+"?", 1)
}
