package postgres_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/worker"
)

func TestNobodyRunsTwiceWhileTheTableIsLocked(t *testing.T) {
	const ttl = time.Second
	sideBySide(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var running, runs atomic.Int32
		var wg sync.WaitGroup
		for _, holder := range []string{"a", "b"} {
			runner, err := worker.NewRunner(worker.RunnerConfig{
				Lease: newLease(t, f, holder, ttl, nil), CleanupTimeout: 100 * time.Millisecond,
				AcquireOptions: []worklease.AcquireOption{worklease.WithWaitForLease(), worklease.WithPollInterval(20 * time.Millisecond)},
				WorkFn: func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
					if running.Add(1) > 1 {
						t.Error("two run at a time")
					}
					runs.Add(1)
					<-ctx.Done()
					running.Add(-1)
					return nil, context.Cause(ctx)
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = runner.Run(ctx, "w")
				}
			})
		}
		await(t, "somebody to run", func() bool { return running.Load() == 1 })
		lock := begin(t, f.admin)
		exec(t, lock, "LOCK TABLE worklease_leases IN ACCESS EXCLUSIVE MODE")
		lockedAt := time.Now()
		await(t, "the holder to stop", func() bool { return running.Load() == 0 })
		if took := time.Since(lockedAt); took > ttl+late {
			t.Errorf("the holder stopped %v after the lock", took)
		}
		time.Sleep(time.Until(lockedAt.Add(2 * ttl)))
		before := runs.Load()
		if err := lock.Commit(); err != nil {
			t.Fatal(err)
		}
		await(t, "somebody to run again", func() bool { return runs.Load() > before })
		cancel()
		wg.Wait()
	})
}

func TestExpiryIsTheServersAndTheWindowIsNot(t *testing.T) {
	const ttl = 4 * time.Second
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		seen := new(renewals)
		_, renewCtx := hold(t, newLease(t, f, "a", ttl, seen), "w", 20*time.Millisecond)
		// Each renewal sets the expiry again, so that it is moved ahead of one of the next.
		exec(t, f.admin, "UPDATE worklease_leases SET expires_at = expires_at + interval '1 hour'")
		made, _ := seen.count()
		// The first may have been made before the update, and only be told of after it.
		await(t, "renewals", func() bool { now, _ := seen.count(); return now > made+2 })
		if deadline, ok := worklease.LeaseWindow(renewCtx); !ok || time.Until(deadline) > ttl {
			t.Errorf("the window lasts %v more", time.Until(deadline))
		}
		exec(t, f.admin, "UPDATE worklease_leases SET expires_at = expires_at - interval '1 hour'")
		mustEnd(t, renewCtx, time.Now(), worklease.ErrLeaseWindowExhausted, worklease.ErrLeaseExpired)
	})
}

func TestReleasedLeaseStaysReleased(t *testing.T) {
	late := map[string]func(f *fixture, record backend.LeaseRecord) error{
		"renew": func(f *fixture, record backend.LeaseRecord) error { return renewMinute(t.Context(), f.store, record) },
		"checkpoint": func(f *fixture, record backend.LeaseRecord) error {
			return f.store.Checkpoint(t.Context(), record, []byte("late"), time.Minute)
		},
	}
	eachDriver(t, func(t *testing.T, driver string) {
		for name, call := range late {
			for _, releaseFirst := range []bool{false, true} {
				f := newFixture(t, driver)
				record := acquire(t, f.store, "w", "a", time.Minute)
				release := func() error { return f.store.Release(t.Context(), record, backend.ExitAbandoned) }
				calls := []func() error{func() error { return call(f, record) }, release}
				if releaseFirst {
					calls[0], calls[1] = calls[1], calls[0]
				}
				lock := begin(t, f.admin)
				exec(t, lock, "SELECT FROM worklease_leases FOR UPDATE")
				var wg sync.WaitGroup
				var errs [2]error
				for i := range calls {
					wg.Go(func() { errs[i] = calls[i]() })
					f.awaitBlocked(t, i+1)
				}
				if err := lock.Commit(); err != nil {
					t.Fatal(err)
				}
				wg.Wait()
				if releaseFirst {
					errs[0], errs[1] = errs[1], errs[0]
				}
				// The server lets either go first.
				if errs[1] != nil {
					t.Errorf("%s, release first: %v: the release returned %v", name, releaseFirst, errs[1])
				}
				if errs[0] != nil {
					mustMatch(t, errs[0], backend.ErrLeaseExpired)
				}
				mustMatch(t, call(f, record), backend.ErrLeaseExpired)
				next := acquire(t, f.store, "w", "b", time.Minute)
				if found, err := f.store.ReadCheckpoint(t.Context(), next); err != nil || found.PrevExit != backend.ExitAbandoned {
					t.Errorf("%s, release first: %v: the successor reads %v, %v", name, releaseFirst, found.PrevExit, err)
				}
				mustMatch(t, call(f, record), backend.ErrFenced)
			}
		}
	})
}

// A failover without synchronous replication may undo what was committed last.
func TestHolderWhoseAcquisitionTheServerLostIsFenced(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		first := acquire(t, f.store, "w", "a", time.Minute)
		exec(t, f.admin, "UPDATE worklease_leases SET expires_at = now() - interval '1 s'")
		exec(t, f.admin, "CREATE TABLE before AS TABLE worklease_leases")
		seen := new(renewals)
		lease := newLease(t, f, "b", 20*time.Second, seen)
		token, renewCtx := hold(t, lease, "w", 20*time.Millisecond)
		exec(t, f.admin, `WITH lost AS (DELETE FROM worklease_leases) SELECT`)
		exec(t, f.admin, `INSERT INTO worklease_leases TABLE before`)
		mustEnd(t, renewCtx, time.Now(), worklease.ErrFenced)
		mustMatch(t, lease.Checkpoint(t.Context(), token, []byte("zombie")), worklease.ErrFenced)
		mustMatch(t, lease.Release(t.Context(), token, worklease.ExitFinished), worklease.ErrFenced)
		// The first holder's lease was over, and still is; but nobody has taken it, as far as the server knows.
		mustMatch(t, renewMinute(t.Context(), f.store, first), backend.ErrLeaseExpired)
		if next := acquire(t, f.store, "w", "c", time.Minute); next.FencingToken <= token.FencingToken() {
			t.Errorf("token %d after %d", next.FencingToken, token.FencingToken())
		}
	})
}

func TestZombieStaysStoppedWhateverTheStoreSays(t *testing.T) {
	sideBySide(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		const ttl = time.Second
		seen := new(renewals)
		lease := newLease(t, f, "a", ttl, seen)
		token, renewCtx := hold(t, lease, "w", 50*time.Millisecond)
		await(t, "a renewal", func() bool { return !seen.lastGood().IsZero() })
		lock := begin(t, f.admin)
		exec(t, lock, "SELECT FROM worklease_leases FOR UPDATE")
		faults := []func(){func() { f.terminate(t) }, proxy.Cut, func() {
			exec(t, f.admin, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = $1", f.name(t))
		}}
		for i := 0; renewCtx.Err() == nil; i++ {
			faults[i%len(faults)]()
			time.Sleep(10 * time.Millisecond)
		}
		mustEnd(t, renewCtx, seen.lastGood().Add(ttl), worklease.ErrLeaseWindowExhausted)
		if err := lock.Commit(); err != nil {
			t.Fatal(err)
		}
		await(t, "another to acquire", func() bool {
			_, err := newLease(t, f, "b", time.Minute, nil).Acquire(t.Context(), "w")
			return err == nil
		})
		await(t, "an answer", func() bool { return errors.Is(lease.Checkpoint(t.Context(), token, nil), worklease.ErrFenced) })
		if again, _ := lease.StartRenewal(t.Context(), token); again.Err() == nil {
			t.Error("a zombie renews again")
		}
	})
}
