package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/pgtest"
)

// mustFail checks an error of the server's: that it is there, and nothing else.
func mustFail(t testing.TB, err error, op, code string, hints ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s succeeds", op)
		return
	}
	mustNotMatch(t, err, backend.ErrFenced, backend.ErrLeaseHeld, backend.ErrLeaseExpired,
		context.Canceled, context.DeadlineExceeded)
	var (
		pqErr  *pq.Error
		pgxErr *pgconn.PgError
		got    string
	)
	switch {
	case errors.As(err, &pqErr):
		got = string(pqErr.Code)
	case errors.As(err, &pgxErr):
		got = pgxErr.Code
	}
	if got != code {
		t.Errorf("%s: %v has the code %q, want %s", op, err, got, code)
	}
	for _, hint := range append(hints, "postgres: "+op+": ") {
		if !strings.Contains(err.Error(), hint) {
			t.Errorf("%v does not mention %q", err, hint)
		}
	}
}

// everyCall makes every call that there is.
func everyCall(t testing.TB, f *fixture, record backend.LeaseRecord, check func(op string, err error)) {
	t.Helper()
	ctx := t.Context()
	_, err := f.store.Acquire(ctx, "other", "a", time.Minute)
	check("acquire", err)
	check("renew", f.store.Renew(ctx, record, time.Minute))
	check("checkpoint", f.store.Checkpoint(ctx, record, []byte("x"), time.Minute))
	check("release", f.store.Release(ctx, record, backend.ExitFinished))
	check("forget", f.store.Forget(ctx, record))
	_, err = f.store.Sweep(ctx, backend.SweepOptions{})
	check("sweep", err)
}

func TestMissingTableIsSaidWithTheCure(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		exec(t, f.admin, "DROP TABLE worklease_leases")
		everyCall(t, f, record, func(op string, err error) { mustFail(t, err, op, "42P01", "Migrate", "search_path") })
		exec(t, f.admin, "CREATE TABLE worklease_leases (work_id text PRIMARY KEY)")
		mustFail(t, f.store.Renew(t.Context(), record, time.Minute), "renew", "42703", "Migrate")
	})
}

func TestReadOnlyServerIsSaidWithTheCure(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		f.reopen(t, driver, "default_transaction_read_only=on")
		everyCall(t, f, record, func(op string, err error) { mustFail(t, err, op, "25006", "standby") })
		if found, err := f.store.ReadCheckpoint(t.Context(), record); err != nil {
			t.Errorf("reading: %+v, %v", found, err)
		}
	})
}

func TestRoleWithoutTheRightsIsToldWhichItNeeds(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		role := strings.ToLower("role_" + rand.Text())
		exec(t, f.admin, "CREATE ROLE "+role)
		exec(t, f.admin, "GRANT USAGE ON SCHEMA "+currentSchema(t, f.admin)+" TO "+role)
		t.Cleanup(func() {
			exec(t, f.admin, "DROP OWNED BY "+role)
			exec(t, f.admin, "DROP ROLE "+role)
		})
		f.reopen(t, driver, "role="+role)
		everyCall(t, f, record, func(op string, err error) {
			mustFail(t, err, op, "42501", "SELECT, INSERT, UPDATE and DELETE", "USAGE")
		})

		exec(t, f.admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON worklease_leases TO "+role)
		_, err := f.store.Acquire(t.Context(), "other", "a", time.Minute)
		mustFail(t, err, "acquire", "42501", "worklease_fencing_seq")

		exec(t, f.admin, "GRANT USAGE ON worklease_fencing_seq TO "+role)
		everyCall(t, f, record, func(op string, err error) {
			if err != nil {
				t.Errorf("%s with all the rights that were named: %v", op, err)
			}
		})
	})
}

func TestFullServerIsSaidAsItIs(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		role := strings.ToLower("role_" + rand.Text())
		exec(t, f.admin, "CREATE ROLE "+role+" LOGIN PASSWORD 'x' CONNECTION LIMIT 0")
		t.Cleanup(func() { exec(t, f.admin, "DROP ROLE "+role) })
		u, err := url.Parse(f.dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(role, "x")
		f.use(t, pgtest.Open(t, driver, u.String()))
		everyCall(t, f, record, func(op string, err error) { mustFail(t, err, op, "53300", "connection") })
	})
}

func TestLockTimeoutAndStatementTimeoutAreNoEndOfTheContext(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		tx := f.lock(t)
		for setting, code := range map[string]string{"lock_timeout=100": "55P03", "statement_timeout=100": "57014"} {
			f.reopen(t, driver, setting)
			mustFail(t, f.store.Renew(t.Context(), record, time.Minute), "renew", code)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			mustFail(t, f.store.Checkpoint(ctx, record, nil, time.Minute), "checkpoint", code)
			cancel()
		}
		unlock(t, tx)
		if err := f.store.Renew(t.Context(), record, time.Minute); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestCancelledStatementMatchesItsContext(t *testing.T) {
	everyWay(t, func(t *testing.T, f *fixture) {
		record := acquire(t, f.store, "w", "a", time.Minute)
		tx := f.lock(t)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := f.store.Renew(ctx, record, time.Minute)
		mustMatch(t, err, context.DeadlineExceeded)
		mustNotMatch(t, err, context.Canceled, backend.ErrLeaseExpired, backend.ErrFenced)
		if !strings.Contains(err.Error(), "postgres: renew: ") {
			t.Errorf("%v does not name the operation", err)
		}
		unlock(t, tx)
	})
}

func TestExhaustedPoolIsNamed(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		f.db.SetMaxOpenConns(1)
		busy, err := f.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer busy.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err = f.store.Renew(ctx, record, time.Minute)
		mustMatch(t, err, context.DeadlineExceeded)
		if !strings.Contains(fmt.Sprint(err), "all 1 connections of the pool are in use") {
			t.Errorf("%v does not name the pool", err)
		}
	})
}

func TestEndedBackendIsAnErrorAndTheNextCallRecovers(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		tx := f.lock(t)
		var (
			wg  sync.WaitGroup
			err error
		)
		wg.Go(func() { err = f.store.Checkpoint(t.Context(), record, []byte("x"), time.Minute) })
		f.awaitBlocked(t, 1)
		exec(t, f.admin, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted AND pid IN
			(SELECT pid FROM pg_locks WHERE relation = 'worklease_leases'::regclass)`)
		await(t, "its end", func() bool { return f.blocked(t) == 0 || driver == "pq" })
		unlock(t, tx)
		wg.Wait()
		want := ""
		if driver == "pq" && err == nil {
			want = "x" // it calls the connection bad, upon which database/sql sends the statement again
		} else {
			mustFail(t, err, "checkpoint", "57P01")
		}
		if found, err := f.store.ReadCheckpoint(t.Context(), record); err != nil || string(found.State) != want {
			t.Errorf("afterwards: %q, %v; want %q", found.State, err, want)
		}
	})
}

// No driver may mend such text: two IDs could become one.
func TestTextThatIsNoTextIsRefused(t *testing.T) {
	everyWay(t, func(t *testing.T, f *fixture) {
		for name, bad := range map[string]string{"NUL": "w\x00", "broken UTF-8": "w\xff", "half a rune": "w\xc3"} {
			_, err := f.store.Acquire(t.Context(), bad, "a", time.Minute)
			if err == nil {
				t.Errorf("%s in a work ID is taken", name)
			}
			mustNotMatch(t, err, backend.ErrFenced, backend.ErrLeaseHeld)
			if _, err = f.store.Acquire(t.Context(), "w", bad, time.Minute); err == nil {
				t.Errorf("%s in a holder ID is taken", name)
			}
		}
		if n := scan[int](t, f.admin, "SELECT count(*) FROM worklease_leases"); n != 0 {
			t.Errorf("%d rows", n)
		}
		acquire(t, f.store, "w", "a", time.Minute)
	})
}

func TestWorkIDBeyondTheIndexIsAnError(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		letters := make([]byte, 3008) // random ones, since the index compresses
		rand.Read(letters)
		for i := range letters {
			letters[i] = '!' + letters[i]%94
		}
		_, err := f.store.Acquire(t.Context(), string(letters), "a", time.Minute)
		mustFail(t, err, "acquire", "54000")
	})
}
