package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// holdMany stores n leases of a holder "a" with so much time left, and returns their records in no order.
func holdMany(t testing.TB, f *fixture, n int, left time.Duration) []backend.LeaseRecord {
	t.Helper()
	rows, err := f.admin.Query(`INSERT INTO worklease_leases (work_id, holder_id, expires_at, checkpoint, acquired_at, updated_at)
		SELECT 'w' || i, 'a', clock_timestamp() + $2 * interval '1 microsecond', 'state', now() - interval '1 hour', now() - interval '1 hour'
		FROM generate_series(1, $1::int) AS i ORDER BY md5(i::text) RETURNING work_id, fencing_token`, n, left.Microseconds())
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var records []backend.LeaseRecord
	for rows.Next() {
		record := backend.LeaseRecord{HolderID: "a"}
		if err := rows.Scan(&record.WorkID, &record.FencingToken); err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return records
}

func renewBatch(t testing.TB, b *postgres.Backend, records []backend.LeaseRecord, ttl time.Duration) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // rather than wait for a lock for ever
	defer cancel()
	verdicts, err := b.RenewBatch(ctx, records, ttl)
	if err != nil || len(verdicts) != len(records) {
		t.Fatalf("%d verdicts, %v", len(verdicts), err)
	}
	return verdicts
}

func TestBatchOfAnySizeIsOneStatement(t *testing.T) {
	for _, n := range []int{1, 2, 1000, 2500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, driver string) {
				f, proxy := newProxied(t, driver)
				f.db.SetMaxOpenConns(1)
				records := holdMany(t, f, n, time.Minute)
				warm(t, f.store)
				proxy.ResetTraffic()
				began := time.Now()
				err := errors.Join(renewBatch(t, f.store, records, time.Hour)...)
				if sent := proxy.Traffic().Count('E'); err != nil || sent != 1 {
					t.Errorf("%d statements, %v", sent, err)
				}
				t.Logf("%d leases took %v", n, time.Since(began).Round(time.Millisecond))
				if left := f.rows(t, "expires_at < now() + interval '50 minutes' AND exit_mode IS NULL"); left != 0 {
					t.Errorf("%d leases were not renewed", left)
				}
			})
		})
	}
}

func TestBatchWritesTheExpiryAndNothingElse(t *testing.T) {
	f := newFixture(t, "pgx")
	records := holdMany(t, f, 200, time.Minute)
	const others = `SELECT md5(string_agg(md5((to_jsonb(l) - 'expires_at')::text), '' ORDER BY work_id)) FROM worklease_leases AS l`
	before := scan[string](t, f.admin, others)
	if err := errors.Join(renewBatch(t, f.store, records, time.Hour)...); err != nil {
		t.Fatal(err)
	}
	if after := scan[string](t, f.admin, others); after != before {
		t.Error("another column has changed")
	}
}

// A batch leaves the versions that it replaces on the page until it is committed. Rows that find no room
// there move to another page, once: then each page has room for all of its rows twice.
func TestBatchesAreHOTUpdatesOnceTheRowsHaveRoom(t *testing.T) {
	const leases, settling, rounds = 2000, 12, 4
	f := newFixture(t, "pgx")
	records := holdMany(t, f, leases, time.Minute)
	const pages = `SELECT string_agg((ctid::text::point)[0]::text, ' ' ORDER BY work_id) FROM worklease_leases`
	moves := func() (n int) {
		before := strings.Fields(scan[string](t, f.admin, pages))
		if err := errors.Join(renewBatch(t, f.store, records, time.Hour)...); err != nil {
			t.Fatal(err)
		}
		for i, page := range strings.Fields(scan[string](t, f.admin, pages)) {
			if page != before[i] {
				n++
			}
		}
		return n
	}
	var moved [settling + rounds]int
	for round := range moved {
		moved[round] = moves()
	}
	t.Logf("rows that moved in each round: %v; the table has %s", moved,
		scan[string](t, f.admin, "SELECT pg_size_pretty(pg_relation_size('worklease_leases'))"))
	for _, n := range moved[settling:] {
		if n > leases/100 {
			t.Errorf("%d of %d rows moved", n, leases)
		}
	}
}

func TestRefusedLeasesOfABatchAreExplainedByOneStatement(t *testing.T) {
	f, proxy := newProxied(t, "pgx")
	f.db.SetMaxOpenConns(1)
	records := holdMany(t, f, 500, time.Minute)
	exec(t, f.admin, `UPDATE worklease_leases SET
		fencing_token = fencing_token + CASE WHEN right(work_id, 1) = '1' THEN 10000 ELSE 0 END,
		expires_at = CASE WHEN right(work_id, 1) = '2' THEN now() ELSE expires_at END,
		exit_mode = CASE WHEN right(work_id, 1) IN ('3', '4') THEN 'finished' END`) // not yet due
	exec(t, f.admin, "DELETE FROM worklease_leases WHERE right(work_id, 1) = '5'")
	want := map[byte]error{
		'1': backend.ErrFenced, '5': backend.ErrFenced,
		'2': backend.ErrLeaseExpired, '3': backend.ErrLeaseExpired, '4': backend.ErrLeaseExpired,
	}
	renewBatch(t, f.store, records, time.Minute) // prepares
	proxy.ResetTraffic()
	verdicts := renewBatch(t, f.store, records, time.Hour)
	if n := proxy.Traffic().Count('E'); n != 2 {
		t.Errorf("%d statements", n)
	}
	for i, record := range records {
		if want := want[record.WorkID[len(record.WorkID)-1]]; !errors.Is(verdicts[i], want) {
			t.Errorf("%s: %v, want %v", record.WorkID, verdicts[i], want)
		}
	}
}

// A row that a transaction has locked is left alone, whatever it is about to become.
func TestBatchWaitsForNoTransaction(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		records := holdMany(t, f, 50, time.Minute)
		saving, revived := acquire(t, f.store, "saving", "a", time.Minute), acquire(t, f.store, "revived", "a", 0)
		locked := acquire(t, f.store, "locked", "a", time.Minute)
		tx := begin(t, f.db)
		for _, record := range []backend.LeaseRecord{saving, revived} {
			if err := f.store.Checkpoint(postgres.InTx(t.Context(), tx), record, []byte("inside"), time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		other := begin(t, f.admin)
		exec(t, other, "SELECT FROM worklease_leases WHERE work_id = 'locked' FOR SHARE")

		batch := append([]backend.LeaseRecord{saving, revived, locked}, records...)
		verdicts := renewBatch(t, f.store, batch, time.Hour)
		for i, verdict := range verdicts {
			if i < 3 {
				mustMatch(t, verdict, backend.ErrBusy)
				mustNotMatch(t, verdict, backend.ErrFenced, backend.ErrLeaseExpired, backend.ErrLeaseHeld)
			} else if verdict != nil {
				t.Errorf("%s: %v", batch[i].WorkID, verdict)
			}
		}
		unlock(t, other)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(renewBatch(t, f.store, batch, time.Hour)...); err != nil {
			t.Errorf("once the rows are free: %v", err)
		}
	})
}

// A holder that was superseded does not keep its successor's row from anybody.
func TestBatchLocksOnlyWhatItRenews(t *testing.T) {
	f := newFixture(t, "pgx")
	stale := acquire(t, f.store, "w", "a", 0)
	acquire(t, f.store, "w", "b", time.Minute)
	const locker = "SELECT xmax::text FROM worklease_leases"
	before := scan[string](t, f.admin, locker)
	mustMatch(t, renewBatch(t, f.store, []backend.LeaseRecord{stale}, time.Minute)[0], backend.ErrFenced)
	if after := scan[string](t, f.admin, locker); after != before {
		t.Errorf("the row was locked by transaction %s", after)
	}
}

func TestBatchesBesideEverythingElseNeverDeadlock(t *testing.T) {
	const leases, rounds = 200, 25
	f := newFixture(t, "pgx")
	records := holdMany(t, f, leases, time.Hour)
	other, err := postgres.New(pgtest.Open(t, "pq", f.dsn))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i, store := range []*postgres.Backend{f.store, other, f.store, other} {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range rounds {
				batch := make([]backend.LeaseRecord, leases)
				for to, from := range random.Perm(leases) {
					batch[to] = records[from]
				}
				verdicts, err := store.RenewBatch(t.Context(), batch, time.Hour)
				if err != nil {
					t.Error(err)
				}
				for _, verdict := range verdicts {
					if verdict != nil && !errors.Is(verdict, backend.ErrBusy) {
						t.Error(verdict)
					}
				}
				if err := store.Renew(t.Context(), batch[0], time.Hour); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestRenewalsOfABatchAreReportedIfItsRestCannotBeExplained(t *testing.T) {
	f := newFixture(t, "pgx")
	records := holdMany(t, f, 3, time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	verdicts := postgres.Explain(ctx, f.store, records, "+-*")
	if verdicts[0] != nil {
		t.Errorf("what was renewed has the verdict %v", verdicts[0])
	}
	for _, verdict := range verdicts[1:] {
		mustMatch(t, verdict, context.Canceled)
		mustNotMatch(t, verdict, backend.ErrFenced, backend.ErrLeaseExpired, backend.ErrBusy)
	}
}

func TestLookAtTenThousandIsOneReadThatWaitsForNobody(t *testing.T) {
	const n = 10000
	eachDriver(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		f.db.SetMaxOpenConns(1)
		holdMany(t, f, n/2, time.Hour)
		workIDs := make([]string, 0, n)
		for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
			workIDs = append(workIDs, fmt.Sprint("w", i+1))
		}
		warm(t, f.store)
		tx := f.lock(t)
		proxy.ResetTraffic()
		began := time.Now()
		free, err := f.store.Free(t.Context(), workIDs)
		t.Logf("took %v", time.Since(began).Round(time.Millisecond))
		unlock(t, tx)
		if sent := proxy.Traffic().Count('E'); err != nil || sent != 1 {
			t.Errorf("%d statements, %v", sent, err)
		}
		var want []string
		for _, workID := range workIDs {
			if len(workID) == 5 && workID > "w5000" || len(workID) > 5 {
				want = append(want, workID)
			}
		}
		if fmt.Sprint(free) != fmt.Sprint(want) {
			t.Errorf("%d are free, want %d", len(free), len(want))
		}
	})
}
