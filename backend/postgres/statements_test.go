package postgres_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// inOrder are the operations in an order in which each succeeds for the record that was acquired last.
var inOrder = []string{
	"Acquire", "ReadCheckpoint", "Checkpoint", "Renew", "RenewBatch", "Free", "Release",
	"AcquireRead", "ReleaseAfter", "Acquire", "CheckpointRelease", "Forget", "Sweep",
}

// eachInOrder hands out each call, to be made once.
func eachInOrder(t testing.TB, b backend.Backend, workID string, each func(name string, call func() error)) {
	t.Helper()
	var record backend.LeaseRecord
	for _, name := range inOrder {
		each(name, func() (err error) {
			switch name {
			case "Acquire":
				record, err = b.Acquire(t.Context(), workID, "a", time.Minute)
			case "AcquireRead":
				record, _, err = b.(backend.AcquireReader).AcquireRead(t.Context(), workID, "a", time.Minute)
			default:
				err = operations[name](t.Context(), b, record)
			}
			return err
		})
	}
}

// tenure makes each call once and tells each what it returned, and the traffic that it made.
func tenure(t *testing.T, f *fixture, proxy *pgtest.Proxy, each func(name string, err error, traffic pgtest.Traffic)) {
	t.Helper()
	eachInOrder(t, f.store, "tenure", func(name string, call func() error) {
		proxy.ResetTraffic()
		err := call()
		each(name, err, proxy.Traffic())
	})
}

func TestEachOperationIsOneRoundTrip(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		f.db.SetMaxOpenConns(1)
		acquire(t, f.store, "other", "a", time.Minute) // so that the sweep finds something
		warm(t, f.store)
		tenure(t, f, proxy, func(name string, err error, traffic pgtest.Traffic) {
			trips := traffic.RoundTrips - traffic.Count('Q') // pgx pings a connection that lay idle for a second
			if err != nil || trips != 1 || traffic.Count('P') != 0 {
				t.Errorf("%s: %v, %d round trips, messages %s", name, err, traffic.RoundTrips, traffic.Messages)
			}
		})
	})
}

func TestWithoutPrepareNothingIsPrepared(t *testing.T) {
	for _, driver := range []string{"pq", "pq-binary", "pgx-exec", "pgx-cache_describe", "pgx-simple_protocol"} {
		t.Run(driver, func(t *testing.T) {
			f, proxy := newProxied(t, driver, postgres.WithoutPrepare())
			f.db.SetMaxOpenConns(1)
			warm(t, f.store)
			most := 0
			tenure(t, f, proxy, func(name string, err error, traffic pgtest.Traffic) {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				t.Logf("%s: %d round trips, messages %s", name, traffic.RoundTrips, traffic.Messages)
				most = max(most, traffic.RoundTrips-strings.Count(traffic.Messages, "Q"))
			})
			if want := map[string]int{"pq": 2, "pgx-simple_protocol": 0}; most > max(want[driver], 1) {
				t.Errorf("%d round trips", most)
			}
			if n := scan[int](t, f.db, "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%worklease_leases%'"); n != 0 {
				t.Errorf("%d statements are prepared", n)
			}
		})
	}
}

func TestNoCallFailsWhenTheServerHasForgottenTheStatements(t *testing.T) {
	for name, forget := range map[string]string{
		"DEALLOCATE ALL": "DEALLOCATE ALL",
		"DISCARD ALL":    "DISCARD ALL",
		// As text, varchar and text again the columns have another type each time.
		"a column of another type": `DO $$ BEGIN
			IF (SELECT data_type FROM information_schema.columns
				WHERE table_schema = current_schema() AND table_name = 'worklease_leases' AND column_name = 'prev_holder_id') = 'text' THEN
				ALTER TABLE worklease_leases ALTER prev_holder_id TYPE varchar(2000), ALTER holder_id TYPE varchar(2000);
			ELSE
				ALTER TABLE worklease_leases ALTER prev_holder_id TYPE text, ALTER holder_id TYPE text;
			END IF; END $$`,
		"one more column": `DO $$ BEGIN EXECUTE format('ALTER TABLE worklease_leases ADD COLUMN %I int', 'c' || clock_timestamp()); END $$`,
		"a new table":     "DROP TABLE worklease_leases; " + postgres.Schema,
	} {
		t.Run(name, func(t *testing.T) {
			eachDriver(t, func(t *testing.T, driver string) {
				f, proxy := newProxied(t, driver)
				f.db.SetMaxOpenConns(1) // so that it is the one that forgets
				// Drivers have memories of their own, so the second and third time may differ.
				for round := range 4 {
					tenure(t, f, proxy, func(op string, err error, _ pgtest.Traffic) {
						if err != nil {
							t.Errorf("%s in round %d: %v", op, round, err)
						}
					})
					exec(t, f.db, forget)
				}
			})
		})
	}
}

func TestStatementsArePreparedAgainAfterTheServerForgotThem(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		f.db.SetMaxOpenConns(1)
		record := acquire(t, f.store, "w", "a", time.Minute)
		parses := func() int {
			proxy.ResetTraffic()
			if err := renewMinute(t.Context(), f.store, record); err != nil {
				t.Fatal(err)
			}
			return proxy.Traffic().Count('P')
		}
		const forgetful = 200 * time.Millisecond
		postgres.Forgetful(t, forgetful)
		for range 3 {
			time.Sleep(forgetful) // the statement has been of use for long
			exec(t, f.db, "DEALLOCATE ALL")
			first, second, third := parses(), parses(), parses()
			if first == 0 || third != 0 {
				t.Errorf("%d, %d and %d statements were parsed", first, second, third)
			}
		}
		// A server that forgets all the time, as it seems through some poolers, is not asked to remember.
		postgres.Forgetful(t, time.Hour)
		exec(t, f.db, "DEALLOCATE ALL")
		parses()
		before := scan[int](t, f.db, "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%worklease_leases%' AND name NOT LIKE 'stmtcache%'")
		for range 5 {
			parses()
		}
		after := scan[int](t, f.db, "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%worklease_leases%' AND name NOT LIKE 'stmtcache%'")
		if after != before {
			t.Errorf("%d statements more", after-before)
		}
	})
}

func TestFirstCallsAtOncePrepareAStatementOnce(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f, _ := newProxied(t, driver)
		f.db.SetMaxOpenConns(4)
		record := acquire(t, f.store, "w", "a", time.Minute)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 5 {
					if err := renewMinute(t.Context(), f.store, record); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		f.db.SetMaxOpenConns(1) // closes the others
		n := scan[int](t, f.db, "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%''renew''%' AND name NOT LIKE 'stmtcache%'")
		if n > 1 {
			t.Errorf("the statement is prepared %d times on one connection", n)
		}
	})
}
