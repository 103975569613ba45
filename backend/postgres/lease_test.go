package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/worker"
)

// late is how long after its time an event may be seen, on machines that are busy.
const late = 2 * time.Second

// renewals records the renewals of a lease.
type renewals struct {
	worklease.NoopObserver
	mu     sync.Mutex
	good   time.Time // when the last one that succeeded began
	made   int
	failed []error
}

func (r *renewals) OnRenew(_ context.Context, e worklease.RenewEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Err != nil {
		r.failed = append(r.failed, e.Err)
		return
	}
	r.made++
	r.good = time.Now().Add(-e.Duration)
}

func (r *renewals) lastGood() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.good
}

func (r *renewals) count() (made int, failed []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made, append([]error(nil), r.failed...)
}

// unanswered counts the renewals that are under way at a time.
type unanswered struct {
	backend.Backend
	now, most atomic.Int32
}

func (u *unanswered) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	for now := u.now.Add(1); ; {
		if most := u.most.Load(); now <= most || u.most.CompareAndSwap(most, now) {
			break
		}
	}
	defer u.now.Add(-1)
	return u.Backend.Renew(ctx, record, ttl)
}

func newLease(t testing.TB, f *fixture, holderID string, ttl time.Duration, observer worklease.LeaseObserver) worklease.Lease {
	t.Helper()
	lease, err := worklease.New(f.store, worklease.Config{TTL: ttl, HolderID: holderID, Observer: observer})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// hold acquires a lease and renews it every interval.
func hold(t testing.TB, lease worklease.Lease, workID string, interval time.Duration) (worklease.Token, context.Context) {
	t.Helper()
	token, err := lease.Acquire(t.Context(), workID)
	if err != nil {
		t.Fatal(err)
	}
	renewCtx, stop := lease.StartRenewal(t.Context(), token, worklease.WithRenewalInterval(interval))
	t.Cleanup(stop)
	return token, renewCtx
}

// mustEnd waits for the end of a renewCtx, which is to come no later than by.
func mustEnd(t testing.TB, renewCtx context.Context, by time.Time, causes ...error) {
	t.Helper()
	select {
	case <-renewCtx.Done():
		over := time.Since(by).Round(time.Millisecond)
		t.Logf("the context ended %v after its time: %v", over, context.Cause(renewCtx))
		if over > late {
			t.Errorf("the context ended %v too late", over)
		}
		mustMatch(t, context.Cause(renewCtx), causes...)
	case <-time.After(time.Until(by) + 10*time.Second):
		t.Fatal("the context does not end")
	}
}

func TestWorkEndsWithItsWindowOnASilentNetwork(t *testing.T) {
	const ttl = time.Second
	sideBySide(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		seen, counted := new(renewals), &unanswered{Backend: f.store}
		lease, err := worklease.New(counted, worklease.Config{TTL: ttl, HolderID: "a", Observer: seen})
		if err != nil {
			t.Fatal(err)
		}
		_, renewCtx := hold(t, lease, "w", 200*time.Millisecond)
		await(t, "a renewal", func() bool { return !seen.lastGood().IsZero() })
		proxy.Freeze()
		inUse := 0
		for renewCtx.Err() == nil {
			inUse = max(inUse, f.db.Stats().InUse)
			time.Sleep(time.Millisecond)
		}
		mustEnd(t, renewCtx, seen.lastGood().Add(ttl), worklease.ErrLeaseWindowExhausted)
		// With lib/pq a call that is cancelled to make room for the next goes on in the driver.
		t.Logf("at most %d calls without an answer, %d connections in use", counted.most.Load(), inUse)
		if counted.most.Load() > 3 || inUse > 10 {
			t.Errorf("at most %d calls without an answer, %d connections in use", counted.most.Load(), inUse)
		}
		proxy.Thaw()
		await(t, "the calls to end", func() bool { return f.db.Stats().InUse == 0 })
		await(t, "the lease to be free", func() bool {
			_, err := newLease(t, f, "b", ttl, nil).Acquire(t.Context(), "w")
			return err == nil
		})
	})
}

func TestRunReturnsAfterItsCleanupTimeoutOnASilentNetwork(t *testing.T) {
	const timeout = 500 * time.Millisecond
	sideBySide(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var left time.Time
		runner, err := worker.NewRunner(worker.RunnerConfig{
			Lease: newLease(t, f, "a", 20*time.Second, nil), CleanupTimeout: timeout,
			WorkFn: func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
				proxy.Freeze()
				cancel()
				<-ctx.Done()
				left = time.Now()
				return []byte("last"), context.Cause(ctx)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		err = runner.Run(ctx, "w")
		took := time.Since(left)
		t.Logf("Run returned after %v: %v", took.Round(time.Millisecond), err)
		if took > timeout+late {
			t.Errorf("Run returned after %v", took)
		}
		mustMatch(t, err, context.Canceled, context.DeadlineExceeded)
	})
}

func TestWorkEndsWithItsWindowWhenTheServerIsGone(t *testing.T) {
	const ttl = time.Second
	server := pgtest.New(t)
	eachDriver(t, func(t *testing.T, driver string) {
		f, _ := proxiedTo(t, driver, server.Schema(t))
		began := time.Now()
		_, renewCtx := hold(t, newLease(t, f, "a", ttl, nil), "w", ttl/2)
		server.StopImmediate()
		defer server.Start()
		mustEnd(t, renewCtx, time.Now().Add(ttl), worklease.ErrLeaseWindowExhausted)
		t.Logf("%v after it was acquired", time.Since(began).Round(time.Millisecond))
	})
}

func TestLeaseOutlivesConnectionsThatEndAgainAndAgain(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f, _ := newProxied(t, driver)
		seen := new(renewals)
		_, renewCtx := hold(t, newLease(t, f, "a", 20*time.Second, seen), "w", 20*time.Millisecond)
		for range 5 {
			f.terminate(t)
			made, _ := seen.count()
			await(t, "a renewal", func() bool { now, _ := seen.count(); return now > made })
		}
		if err := context.Cause(renewCtx); err != nil {
			t.Errorf("the lease was lost: %v", err)
		}
		made, failed := seen.count()
		t.Logf("%d renewals, %d failed", made, len(failed))
	})
}

func TestLossIsSeenInTimeWhenTheWorkUsesUpThePool(t *testing.T) {
	const ttl = time.Second
	sideBySide(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		f.db.SetMaxOpenConns(2)
		seen := new(renewals)
		_, renewCtx := hold(t, newLease(t, f, "a", ttl, seen), "w", ttl/4)
		for range 2 {
			defer begin(t, f.db).Rollback()
		}
		mustEnd(t, renewCtx, time.Now().Add(ttl), worklease.ErrLeaseWindowExhausted)
		named := func(err error) bool {
			return err != nil && strings.Contains(err.Error(), "all 2 connections of the pool are in use")
		}
		await(t, "an error that names the pool", func() bool {
			_, failed := seen.count()
			return len(failed) > 0 && named(failed[len(failed)-1])
		})
		_, failed := seen.count()
		t.Logf("%d renewals failed: %v", len(failed), failed[len(failed)-1])
	})
}

func TestLockedRowCostsNoOtherLease(t *testing.T) {
	const ttl = 4 * time.Second
	sideBySide(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		f.db.SetMaxOpenConns(10)
		lease := newLease(t, f, "a", ttl, nil)
		var others []context.Context
		for i := range 20 {
			_, renewCtx := hold(t, lease, fmt.Sprint(i), ttl/4)
			others = append(others, renewCtx)
		}
		locked := others[7]
		others = append(others[:7:7], others[8:]...)
		lock := begin(t, f.admin)
		exec(t, lock, "SELECT FROM worklease_leases WHERE work_id = '7' FOR UPDATE")
		lockedAt := time.Now()
		mustEnd(t, locked, lockedAt.Add(ttl), worklease.ErrLeaseWindowExhausted)
		for _, other := range others {
			if deadline, ok := worklease.LeaseWindow(other); !ok || !deadline.After(lockedAt.Add(ttl)) {
				t.Errorf("another lease: window until %v after the lock, %v", deadline.Sub(lockedAt), context.Cause(other))
			}
		}
	})
}

func TestWaitingForAHeldLeaseWritesNothing(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		f.db.SetMaxOpenConns(20)
		seen := new(renewals)
		_, renewCtx := hold(t, newLease(t, f, "a", 20*time.Second, seen), "w", 50*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := newLease(t, f, "b", time.Minute, nil)
		position := func() int { return scan[int](t, f.admin, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn") }
		before := position()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				_, err := waiting.Acquire(ctx, "w", worklease.WithWaitForLease(), worklease.WithPollInterval(20*time.Millisecond))
				mustMatch(t, err, context.Canceled)
			})
		}
		await(t, "renewals meanwhile", func() bool { made, _ := seen.count(); return made >= 20 })
		cancel()
		wg.Wait()
		made, failed := seen.count()
		t.Logf("%d bytes of WAL with %d renewals", position()-before, made)
		if len(failed) > 0 || renewCtx.Err() != nil {
			t.Errorf("renewals that failed: %v; the lease: %v", failed, context.Cause(renewCtx))
		}
		if token := scan[int64](t, f.admin, "SELECT last_value FROM worklease_fencing_seq"); token != 1 {
			t.Errorf("%d tokens were drawn", token)
		}
		if logged := position() - before; logged > made*1000+20000 {
			t.Errorf("%d bytes of WAL for %d renewals", logged, made)
		}
	})
}

func TestCancelledCallsCostNoRenewal(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		f.db.SetMaxOpenConns(10)
		f.db.SetMaxIdleConns(10)
		seen := new(renewals)
		lease := newLease(t, f, "a", 20*time.Second, seen)
		for i := range 20 {
			hold(t, lease, fmt.Sprint(i), 20*time.Millisecond)
		}
		end := time.Now().Add(1500 * time.Millisecond)
		var wg sync.WaitGroup
		var cancelled atomic.Int32
		for range 4 {
			wg.Go(func() {
				for i := 0; time.Now().Before(end); i++ {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20)*100*time.Microsecond)
					_, err := f.store.Acquire(ctx, "0", "b", time.Minute)
					if errors.Is(err, context.DeadlineExceeded) {
						cancelled.Add(1)
					}
					_, err = f.store.Sweep(ctx, backend.SweepOptions{Retention: time.Hour})
					if errors.Is(err, context.DeadlineExceeded) {
						cancelled.Add(1)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		made, failed := seen.count()
		t.Logf("%d renewals, %d failed, next to %d cancelled calls", made, len(failed), cancelled.Load())
		for _, err := range failed {
			if strings.Contains(err.Error(), "canceling statement") {
				t.Errorf("a renewal was cancelled in place of another call: %v", err)
			}
		}
	})
}
