package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/pgtest"
)

// largeRows is how many rows of a kind a large table has here. WORKLEASE_TEST_SWEEP_ROWS=1000000 shows
// one of years.
func largeRows(t testing.TB) int {
	t.Helper()
	text, set := os.LookupEnv("WORKLEASE_TEST_SWEEP_ROWS")
	if !set {
		return 50_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("WORKLEASE_TEST_SWEEP_ROWS=%s is no number of rows", text)
	}
	return n
}

// A large table is swept in however many calls it takes, and no renewal waits for it meanwhile.
func TestLargeTableIsSweptBesideRenewals(t *testing.T) {
	rows := largeRows(t)
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		f.db.SetMaxIdleConns(10)
		began := time.Now()
		fill(t, f, rows, "a-finished-", "finished")
		fill(t, f, rows, "b-retired-", "retired")
		t.Logf("filled in %v", time.Since(began).Round(time.Millisecond))
		waits := new(waits)
		lease := newLease(t, f, "a", time.Minute, waits)
		var held []context.Context
		for i := range 20 {
			_, renewCtx := hold(t, lease, fmt.Sprint("b-retired-", i*rows/20, "-not"), 100*time.Millisecond)
			held = append(held, renewCtx)
		}
		await(t, "renewals", func() bool { return waits.count() >= 200 })
		alone, _ := waits.take()

		var swept int64
		calls := 0
		stop := f.mustNotWaitForRows(t)
		defer stop()
		began = time.Now()
		for left := rows; left > 0; {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rows)*20*time.Microsecond)
			n, err := f.store.Sweep(ctx, backend.SweepOptions{Retention: time.Minute})
			cancel()
			swept += n
			if calls++; err != nil && !errors.Is(err, context.DeadlineExceeded) || calls == 1000 {
				t.Fatalf("call %d, after %d rows: %v", calls, swept, err)
			}
			left = f.rows(t, "exit_mode = 'retired'")
		}
		took := time.Since(began).Round(time.Millisecond)
		stop()
		await(t, "renewals", func() bool { return waits.count() >= 20 })
		beside, failed := waits.take()
		t.Logf("%d calls took %v; renewals alone: %s; beside the sweep: %s", calls, took, quantiles(alone), quantiles(beside))
		// The last batch of a call may have been deleted without an answer.
		if swept > int64(rows) || swept+int64(calls*1000) < int64(rows) {
			t.Errorf("swept %d rows of %d", swept, rows)
		}
		if left := f.rows(t, "exit_mode = 'finished'"); left != rows {
			t.Errorf("%d finished rows are left", left)
		}
		for _, renewCtx := range held {
			if err := context.Cause(renewCtx); err != nil {
				t.Errorf("a lease was lost: %v", err)
			}
		}
		if failed > 0 {
			t.Errorf("%d renewals failed", failed)
		}
	})
}

// mustNotWaitForRows looks now and again, until it is told to stop, whether a statement waits for a row.
func (f *fixture) mustNotWaitForRows(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for looks := 1; ; looks++ {
			var waiting int
			err := f.admin.QueryRowContext(ctx, `SELECT count(DISTINCT l.pid) FROM pg_locks AS l JOIN pg_locks AS mine USING (pid)
				WHERE NOT l.granted AND l.locktype IN ('tuple', 'transactionid') AND mine.relation = 'worklease_leases'::regclass`).Scan(&waiting)
			switch {
			case ctx.Err() != nil:
				t.Logf("looked %d times for statements that wait", looks)
				return
			case err != nil || waiting > 0:
				t.Errorf("%d statements wait for a row, %v", waiting, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// A sweep that ends before it has passed the rows that stay is no loss: the next one goes on from there,
// and looks at the rest in the end.
func TestSweepThatIsCutShortIsTakenUpByTheNext(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		fill(t, f, 500, "a-retired", "retired")
		fill(t, f, 12000, "b-finished", "finished")
		fill(t, f, 1500, "c-retired", "retired")
		opts := backend.SweepOptions{Retention: time.Minute}
		// 14 batches, four at a time. The fourth call has two to spare, and so looks at the first again.
		for i, want := range []int64{500, 0, 0, 1501} {
			proxy.ResetTraffic()
			n, err := f.store.Sweep(batches{t.Context(), proxy, 4}, opts)
			mustMatch(t, err, context.Canceled)
			if n != want {
				t.Errorf("call %d swept %d, want %d", i+1, n, want)
			}
			if i == 0 {
				fill(t, f, 1, "a-later", "retired") // where it has been already
			}
		}
		if n := f.rows(t, "exit_mode = 'retired'"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
		// All is well when all has been looked at in one call, and then the next begins with the first row.
		for _, prefix := range []string{"a-again", "c-again"} {
			fill(t, f, 1, prefix, "retired")
			proxy.ResetTraffic()
			if n, err := f.store.Sweep(t.Context(), opts); n != 1 || err != nil {
				t.Errorf("swept %d, %v", n, err)
			}
			if n := proxy.Traffic().Count('E'); n < 13 || n > 14 {
				t.Errorf("swept in %d statements", n)
			}
		}
	})
}

// batches is a context that ends when so many statements have been executed.
type batches struct {
	context.Context
	proxy *pgtest.Proxy
	limit int
}

func (b batches) Done() <-chan struct{} { return nil } // so that nothing is cut off half-way

func (b batches) Err() error {
	if b.proxy.Traffic().Count('E') >= b.limit {
		return context.Canceled
	}
	return nil
}

// waits records how long renewals take.
type waits struct {
	worklease.NoopObserver
	mu     sync.Mutex
	took   []time.Duration
	failed int
}

func (w *waits) OnRenew(_ context.Context, e worklease.RenewEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, e.Duration)
	if e.Err != nil {
		w.failed++
	}
}

// take returns what has been recorded, and begins anew.
func (w *waits) take() (took []time.Duration, failed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	took, failed = w.took, w.failed
	w.took, w.failed = nil, 0
	return took, failed
}

func (w *waits) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.took)
}

func quantiles(took []time.Duration) string {
	slices.Sort(took)
	at := func(share float64) time.Duration {
		return took[int(share*float64(len(took)-1))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%d, p50 %v, p99 %v, longest %v", len(took), at(0.5), at(0.99), at(1))
}
