package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// odd are settings that an administrator may have given to a database or a role, and that change how
// values are read, written or planned.
var odd = []string{
	"TimeZone = 'Asia/Kathmandu'",
	"DateStyle = 'German, DMY'",
	"IntervalStyle = 'sql_standard'",
	"bytea_output = 'escape'",
	"extra_float_digits = -15",
	"standard_conforming_strings = off",
	"client_encoding = 'LATIN1'",
	"plan_cache_mode = 'force_generic_plan'",
	"enable_indexscan = off", // and so a bitmap
	"join_collapse_limit = 1",
	"from_collapse_limit = 1",
	"synchronous_commit = off",
	"default_transaction_deferrable = on",
	"transform_null_equals = on",
}

// oddDatabase is a database with odd settings.
func oddDatabase(t testing.TB) string {
	t.Helper()
	dsn := pgtest.Database(t)
	setDefaults(t, dsn, odd...)
	return dsn
}

// setDefaults changes what sessions that begin from now on find set.
func setDefaults(t testing.TB, dsn string, settings ...string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	admin := pgtest.Start(t).Admin(t) // a session of the database itself would stay as it is
	for _, setting := range settings {
		exec(t, admin, "ALTER DATABASE "+strings.TrimPrefix(u.Path, "/")+" SET "+setting)
	}
}

func TestStateIsReadAsItIsWhateverTheSessionsSettings(t *testing.T) {
	want := []byte{0x00, 0x01, 0xff, 0x5c, '\'', 'a'}
	for _, driver := range pgtest.Drivers() {
		for name, opts := range map[string][]postgres.Option{
			driver: nil, driver + " without prepared statements": {postgres.WithoutPrepare()},
		} {
			t.Run(name, func(t *testing.T) {
				f := newFixture(t, driver, opts...)
				record := acquire(t, f.store, "w", "a", time.Minute)
				if err := f.store.Checkpoint(t.Context(), record, want, time.Minute); err != nil {
					t.Fatal(err)
				}
				f.reopen(t, driver, "bytea_output=escape")
				if found, err := f.store.ReadCheckpoint(t.Context(), record); err != nil || !bytes.Equal(found.State, want) {
					t.Errorf("read %x, %v", found.State, err)
				}
			})
		}
	}
}

func TestSessionsThatTheServerEndsWhileTheyAreIdleCostNothing(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		dsn := pgtest.Database(t)
		setDefaults(t, dsn, "idle_in_transaction_session_timeout = '100ms'", "idle_session_timeout = '300ms'")
		f := newFixtureAt(t, driver, dsn)
		defer f.db.SetMaxIdleConns(0) // a pool that is closed complains of connections that have gone
		defer f.admin.SetMaxIdleConns(0)
		elsewhere := pgtest.Start(t).Admin(t)
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		alone := func() {
			await(t, "all sessions to end", func() bool {
				return scan[int](t, elsewhere, "SELECT count(*) FROM pg_stat_activity WHERE datname = $1", strings.TrimPrefix(u.Path, "/")) == 0
			})
		}
		var records []backend.LeaseRecord
		for i := range 20 {
			records = append(records, acquire(t, f.store, fmt.Sprint(i), "a", time.Minute))
		}
		for range 2 {
			alone()
			time.Sleep(time.Second) // pgx looks whether a connection is alive if it was idle for longer than that
			for _, record := range records {
				if err := f.store.Renew(t.Context(), record, time.Minute); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func TestWrongSearchPathIsSaidWithTheCure(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		f.reopen(t, driver, "search_path=pg_catalog")
		mustFail(t, f.store.Renew(t.Context(), record, time.Minute), "renew", "42P01", "worklease_leases", "search_path")
		f.reopen(t, driver, "search_path=pg_catalog,"+currentSchema(t, f.admin))
		if err := f.store.Renew(t.Context(), record, time.Minute); err != nil {
			t.Errorf("with the schema anywhere in the path: %v", err)
		}
	})
}

var stricter = []string{"repeatable read", "serializable"}

// READ COMMITTED is required. What happens without: nothing as long as nobody contends, and then an
// error that says so, but never a wrong answer.
func TestStricterIsolationFailsWhereCallsContend(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		for _, level := range stricter {
			t.Run(level, func(t *testing.T) {
				f := newFixture(t, driver)
				f.reopen(t, driver, "default_transaction_isolation="+level)
				record := acquire(t, f.store, "w", "a", time.Minute)
				acquire(t, f.store, "lapsed", "a", -time.Second)
				contended := func(op string, call func() error) {
					t.Helper()
					tx := begin(t, f.admin)
					exec(t, tx, "UPDATE worklease_leases SET updated_at = clock_timestamp()")
					var (
						wg  sync.WaitGroup
						err error
					)
					wg.Go(func() { err = call() })
					f.awaitBlocked(t, 1)
					if err := tx.Commit(); err != nil {
						t.Fatal(err)
					}
					wg.Wait()
					mustFail(t, err, op, "40001", "READ COMMITTED")
				}
				contended("renew", func() error { return f.store.Renew(t.Context(), record, time.Minute) })
				contended("checkpoint", func() error { return f.store.Checkpoint(t.Context(), record, nil, time.Minute) })
				contended("release", func() error { return f.store.Release(t.Context(), record, backend.ExitRetired) })
				contended("forget", func() error { return f.store.Forget(t.Context(), record) })
				contended("acquire", func() error {
					_, err := f.store.Acquire(t.Context(), "lapsed", "b", time.Minute)
					return err
				})
				everyCall(t, f, record, func(op string, err error) {
					if err != nil {
						t.Errorf("%s with nobody about: %v", op, err)
					}
				})
			})
		}
	})
}

func TestStricterIsolationHasNoTwoWinners(t *testing.T) {
	const rounds, claimants = 10, 8
	for _, level := range stricter {
		t.Run(level, func(t *testing.T) {
			f := newFixture(t, "pgx")
			f.reopen(t, "pgx", "default_transaction_isolation="+level)
			f.db.SetMaxIdleConns(claimants)
			var all int32
			for round := range rounds {
				var (
					wg   sync.WaitGroup
					won  atomic.Int32
					work = fmt.Sprint(round / 2) // absent, then lapsed
				)
				exec(t, f.admin, "UPDATE worklease_leases SET expires_at = now()")
				for i := range claimants {
					wg.Go(func() {
						record, err := f.store.Acquire(t.Context(), work, fmt.Sprint(i), time.Hour)
						switch {
						case err == nil:
							won.Add(1)
							if err := f.store.Renew(t.Context(), record, time.Hour); err != nil && kind(err) != "40001" {
								t.Errorf("the winner's renewal: %v", err)
							}
						case !errors.Is(err, backend.ErrLeaseHeld) && kind(err) != "40001":
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if n := won.Load(); n > 1 {
					t.Errorf("%d winners", n)
				} else {
					all += n
				}
			}
			if all == 0 { // some conflicts end all who are in them, but not all of these
				t.Error("there was never a winner")
			}
		})
	}
}
