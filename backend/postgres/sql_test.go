package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// lock takes the lock of all rows there are, and keeps it until the transaction ends.
func (f *fixture) lock(t testing.TB) interface{ Rollback() error } {
	t.Helper()
	tx := begin(t, f.admin)
	exec(t, tx, "SELECT FROM worklease_leases FOR UPDATE")
	return tx
}

func unlock(t testing.TB, tx interface{ Rollback() error }) {
	t.Helper()
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

func TestClaimantThatWaitedForTheRowHasTheHighestToken(t *testing.T) {
	f := newFixture(t, "pgx")
	acquire(t, f.store, "w", "before", -time.Second)
	other := begin(t, f.admin)
	exec(t, other, "SELECT FROM worklease_leases FOR UPDATE")
	var (
		wg  sync.WaitGroup
		got backend.LeaseRecord
		err error
	)
	wg.Go(func() { got, err = f.store.Acquire(t.Context(), "w", "after", time.Minute) })
	f.awaitBlocked(t, 1)
	exec(t, other, `UPDATE worklease_leases SET holder_id = 'meanwhile', fencing_token = nextval('worklease_fencing_seq'),
		expires_at = now() - interval '1 hour'`)
	elsewhere := acquire(t, f.store, "elsewhere", "a", time.Minute)
	if err := other.Commit(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if got.FencingToken <= elsewhere.FencingToken {
		t.Errorf("token %d of the last acquisition, after %d", got.FencingToken, elsewhere.FencingToken)
	}
	if found, err := f.store.ReadCheckpoint(t.Context(), got); err != nil || found.PrevHolderID != "meanwhile" {
		t.Errorf("its predecessor is %q, %v", found.PrevHolderID, err)
	}
}

func TestTokenIsGreaterThanTheRowsLastWhateverTheSequenceSays(t *testing.T) {
	f := newFixture(t, "pgx")
	release := func(b backend.Backend, record backend.LeaseRecord) {
		if err := b.Release(t.Context(), record, backend.ExitFinished); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("restarted", func(t *testing.T) {
		for range 5 {
			release(f.store, acquire(t, f.store, "w", "a", time.Minute))
		}
		last := scan[uint64](t, f.admin, "SELECT fencing_token FROM worklease_leases")
		exec(t, f.admin, "ALTER SEQUENCE worklease_fencing_seq RESTART")
		if record := acquire(t, f.store, "w", "b", time.Minute); record.FencingToken <= last {
			t.Errorf("token %d after %d", record.FencingToken, last)
		}
	})
	t.Run("cached by connections", func(t *testing.T) {
		exec(t, f.admin, "ALTER SEQUENCE worklease_fencing_seq CACHE 50")
		var last uint64
		stores := []backend.Backend{f.store}
		for range 3 {
			store, err := postgres.New(pgtest.Open(t, "pgx", f.dsn))
			if err != nil {
				t.Fatal(err)
			}
			stores = append(stores, store)
		}
		for i := range 12 {
			store := stores[i%len(stores)]
			record := acquire(t, store, "x", "a", time.Minute)
			if record.FencingToken <= last {
				t.Errorf("token %d after %d", record.FencingToken, last)
			}
			last = record.FencingToken
			release(store, record)
		}
	})
}

// A call that waited for the row longer than the TTL that it brought.
func TestLeaseThatIsOverOnArrivalIsNoSuccess(t *testing.T) {
	const ttl = 300 * time.Millisecond
	calls := map[string]func(f *fixture, record backend.LeaseRecord) error{
		"renew": func(f *fixture, record backend.LeaseRecord) error {
			return f.store.Renew(t.Context(), record, ttl)
		},
		"checkpoint": func(f *fixture, record backend.LeaseRecord) error {
			return f.store.Checkpoint(t.Context(), record, []byte("x"), ttl)
		},
		"acquire": func(f *fixture, record backend.LeaseRecord) error {
			_, err := f.store.Acquire(t.Context(), "new", "a", ttl)
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "pgx")
			record := acquire(t, f.store, "w", "a", time.Minute)
			tx := begin(t, f.admin)
			exec(t, tx, "SELECT FROM worklease_leases FOR UPDATE")
			exec(t, tx, "INSERT INTO worklease_leases (work_id, holder_id, expires_at) VALUES ('new', 'x', now())")
			var (
				wg  sync.WaitGroup
				err error
			)
			wg.Go(func() { err = call(f, record) })
			f.awaitBlocked(t, 1)
			time.Sleep(ttl)
			unlock(t, tx)
			wg.Wait()
			if err == nil {
				t.Error("success, with a lease that is over")
			}
			mustNotMatch(t, err, backend.ErrFenced, backend.ErrLeaseHeld, backend.ErrLeaseExpired)
		})
	}
}

func TestAcquireThatWaitedForTheRowHasItsWholeTTL(t *testing.T) {
	const ttl = 10 * time.Second
	f := newFixture(t, "pgx")
	acquire(t, f.store, "w", "before", -time.Second)
	tx := f.lock(t)
	var (
		wg  sync.WaitGroup
		got backend.LeaseRecord
		err error
	)
	wg.Go(func() { got, err = f.store.Acquire(t.Context(), "w", "after", ttl) })
	f.awaitBlocked(t, 1)
	unlocked := scan[time.Time](t, f.admin, "SELECT clock_timestamp()")
	unlock(t, tx)
	wg.Wait()
	if err != nil || got.ExpiresAt.Before(unlocked.Add(ttl)) {
		t.Errorf("expires %v, %v after the lock was free, %v", got.ExpiresAt, got.ExpiresAt.Sub(unlocked), err)
	}
}

func TestAcquireOfAHeldLeaseWritesNothingAndWaitsForNobody(t *testing.T) {
	// On a server where nobody else writes anything.
	server := pgtest.New(t, "autovacuum = off", "wal_level = minimal", "max_wal_senders = 0", "checkpoint_timeout = 1h")
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixtureAt(t, driver, server.Schema(t))
		acquire(t, f.store, "w", "a", time.Hour)
		attempt := func(i int) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := f.store.Acquire(ctx, "w", fmt.Sprint("b", i), time.Hour)
			if held, ok := errors.AsType[*backend.HeldError](err); !ok || held.HolderID != "a" {
				t.Errorf("b gets %v", err)
			}
		}
		attempt(0) // prepares
		written := func() string {
			return scan[string](t, f.admin, `SELECT concat_ws(' ', 'WAL up to', pg_current_wal_insert_lsn(),
				'next transaction', pg_snapshot_xmax(pg_current_snapshot()), 'token', last_value) FROM worklease_fencing_seq`)
		}
		before := written()
		for i := range 50 {
			attempt(i)
		}
		if after := written(); after != before {
			t.Errorf("%s, before %s", after, before)
		}
		tx := f.lock(t)
		attempt(50)
		unlock(t, tx)
	})
}

func TestEveryOperationIsAHOTUpdate(t *testing.T) {
	const leases, rounds = 20, 25
	f := newFixture(t, "pgx")
	for round := range rounds {
		for i := range leases {
			record := acquire(t, f.store, fmt.Sprint(i), "a", time.Minute)
			err := errors.Join(
				f.store.Renew(t.Context(), record, time.Minute),
				f.store.Checkpoint(t.Context(), record, fmt.Appendf(nil, "%0200d", round), time.Minute),
				f.store.Renew(t.Context(), record, time.Minute),
				f.store.Release(t.Context(), record, backend.ExitFinished))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.db.Close(); err != nil { // a session reports what it has counted when it ends, if not before
		t.Fatal(err)
	}
	const want = leases * (5*rounds - 1)
	await(t, "the server's counters", func() bool {
		return scan[int](t, f.admin, "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relid = 'worklease_leases'::regclass") == want
	})
	hot := scan[int](t, f.admin, "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'worklease_leases'::regclass")
	t.Logf("%d of %d updates were HOT", hot, want)
	if hot < want*99/100 {
		t.Errorf("%d of %d updates were HOT", hot, want)
	}
}
