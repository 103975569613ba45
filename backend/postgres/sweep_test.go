package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
)

// fill inserts n rows whose exit is mode and whose last update and expiry are an hour old.
func fill(t testing.TB, f *fixture, n int, prefix string, mode any) {
	t.Helper()
	exec(t, f.admin, `INSERT INTO worklease_leases (work_id, holder_id, expires_at, exit_mode, checkpoint, acquired_at, updated_at)
		SELECT $2 || i, 'a', now() - interval '1 hour', $3, 'state', now() - interval '2 hours', now() - interval '1 hour'
		FROM generate_series(1, $1::int) AS i`, n, prefix, mode)
}

func (f *fixture) rows(t testing.TB, where string) int {
	t.Helper()
	return scan[int](t, f.admin, "SELECT count(*) FROM worklease_leases WHERE "+where)
}

func TestSweepDeletesWhatIsOldInBatches(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		fill(t, f, 5000, "retired", "retired")
		fill(t, f, 5000, "finished", "finished")
		fill(t, f, 300, "abandoned", "abandoned")
		fill(t, f, 1500, "lapsed", nil)
		for i := range 5 {
			acquire(t, f.store, fmt.Sprint("retired-not-", i), "a", time.Minute)
		}
		sweep := func(opts backend.SweepOptions, want int64) {
			t.Helper()
			began := time.Now()
			if n, err := f.store.Sweep(t.Context(), opts); err != nil || n != want {
				t.Errorf("%+v swept %d, %v; want %d", opts, n, err, want)
			}
			t.Logf("%+v took %v", opts, time.Since(began).Round(time.Millisecond))
		}
		sweep(backend.SweepOptions{Retention: 2 * time.Hour, IncludeExpired: true}, 0)
		sweep(backend.SweepOptions{Retention: time.Hour / 2}, 5000)
		sweep(backend.SweepOptions{Retention: time.Hour / 2}, 0)
		if n := f.rows(t, "exit_mode IS NULL"); n != 1505 {
			t.Errorf("%d rows without an exit are left", n)
		}
		proxy.ResetTraffic()
		sweep(backend.SweepOptions{Retention: time.Hour / 2, IncludeExpired: true}, 1500)
		// 6,805 rows, in batches of a thousand.
		if n := proxy.Traffic().Count('E'); n != 7 {
			t.Errorf("swept in %d statements", n)
		}
		if n := f.rows(t, "exit_mode IN ('finished', 'abandoned') OR expires_at > now()"); n != 5305 {
			t.Errorf("%d rows are left", n)
		}
	})
}

func TestSweepLeavesLockedRowsAndDelaysNobody(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		fill(t, f, 2500, "old", "retired")
		held := acquire(t, f.store, "old-held", "a", time.Minute)
		lock := begin(t, f.admin)
		exec(t, lock, "SELECT FROM worklease_leases WHERE work_id IN ('old1', 'old1500', 'old-held') FOR UPDATE")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // for a sweep that waits
		defer cancel()
		if n, err := f.store.Sweep(ctx, backend.SweepOptions{Retention: time.Minute}); err != nil || n != 2498 {
			t.Errorf("swept %d, %v", n, err)
		}
		if err := lock.Commit(); err != nil {
			t.Fatal(err)
		}
		if n, err := f.store.Sweep(t.Context(), backend.SweepOptions{Retention: time.Minute}); err != nil || n != 2 {
			t.Errorf("swept %d, %v afterwards", n, err)
		}
		if err := renewMinute(t.Context(), f.store, held); err != nil {
			t.Error(err)
		}
	})
}

// A sweep that is held up keeps no lock on what is not to be deleted.
func TestRenewalDoesNotWaitForASweep(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		fill(t, f, 100, "old", "retired")
		held := acquire(t, f.store, "old-held", "a", time.Minute)
		// The sweep waits behind this trigger with its locks taken.
		exec(t, f.admin, `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN PERFORM pg_advisory_xact_lock(hashtext(current_schema())); RETURN OLD; END $$`)
		exec(t, f.admin, "CREATE TRIGGER wait BEFORE DELETE ON worklease_leases FOR EACH ROW EXECUTE FUNCTION wait()")
		lock := begin(t, f.admin)
		exec(t, lock, "SELECT pg_advisory_xact_lock(hashtext(current_schema()))")
		var wg sync.WaitGroup
		wg.Go(func() {
			if n, err := f.store.Sweep(t.Context(), backend.SweepOptions{Retention: time.Minute}); err != nil || n != 100 {
				t.Errorf("swept %d, %v", n, err)
			}
		})
		f.awaitBlocked(t, 1)
		if err := renewMinute(t.Context(), f.store, held); err != nil {
			t.Error(err)
		}
		acquire(t, f.store, "old-new", "a", time.Minute)
		if n := f.blocked(t); n != 1 {
			t.Errorf("%d statements wait", n)
		}
		if err := lock.Commit(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	})
}

func TestSweepThatIsCutShortKeepsWhatItDeleted(t *testing.T) {
	sideBySide(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		const rows = 10000
		warm(t, f.store)
		fill(t, f, rows, "old", "retired")
		proxy.Delay(0, 100*time.Millisecond) // a second for all
		ctx, cancel := context.WithTimeout(t.Context(), 450*time.Millisecond)
		defer cancel()
		n, err := f.store.Sweep(ctx, backend.SweepOptions{Retention: time.Minute})
		mustMatch(t, err, context.DeadlineExceeded)
		proxy.Delay(0, 0)
		t.Logf("%d rows were swept: %v", n, err)
		// The last batch may have been deleted without an answer.
		left := int64(f.rows(t, "true"))
		if n%1000 != 0 || rows-left < n || rows-left > n+1000 {
			t.Errorf("swept %d, and %d of %d are left", n, left, rows)
		}
		var again int64
		await(t, "a sweep", func() bool {
			again, err = f.store.Sweep(t.Context(), backend.SweepOptions{Retention: time.Minute})
			return err == nil
		})
		if n == 0 || again == 0 || f.rows(t, "true") != 0 {
			t.Errorf("swept %d, then %d; %d rows are left", n, again, f.rows(t, "true"))
		}
	})
}

func TestSweepAndRevivalOfARowAgreeOnWhoWasFirst(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		swept, revived := 0, 0
		for i := range 150 {
			record := acquire(t, f.store, fmt.Sprint(i), "a", 0) // lapsed
			var wg sync.WaitGroup
			var n int64
			var sweepErr, err error
			wg.Go(func() {
				n, sweepErr = f.store.Sweep(t.Context(), backend.SweepOptions{Retention: time.Microsecond, IncludeExpired: true})
			})
			wg.Go(func() { err = f.store.Checkpoint(t.Context(), record, []byte("alive"), time.Minute) })
			wg.Wait()
			if sweepErr != nil {
				t.Fatal(sweepErr)
			}
			switch {
			case err == nil && n == 0:
				revived++
				if err := renewMinute(t.Context(), f.store, record); err != nil {
					t.Fatalf("a lease that was revived is gone: %v", err)
				}
			case errors.Is(err, backend.ErrFenced) && n == 1:
				swept++
			default:
				t.Fatalf("swept %d, and the checkpoint returned %v", n, err)
			}
		}
		t.Logf("%d swept, %d revived", swept, revived)
	})
}
