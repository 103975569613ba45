package postgres_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// prompt is how soon a call is to return once its context has ended, and promptBound what is asserted
// of it, since machines that run tests are busy.
const (
	prompt      = 100 * time.Millisecond
	promptBound = 2 * time.Second
)

// newProxied is newFixture with a proxy between the store and the server.
func newProxied(t testing.TB, driver string, opts ...postgres.Option) (*fixture, *pgtest.Proxy) {
	t.Helper()
	return proxiedTo(t, driver, pgtest.Schema(t), opts...)
}

func proxiedTo(t testing.TB, driver, dsn string, opts ...postgres.Option) (*fixture, *pgtest.Proxy) {
	t.Helper()
	f := &fixture{dsn: dsn}
	f.admin = pgtest.Open(t, "pgx", f.dsn)
	createTable(t, f.admin)
	proxy := pgtest.NewProxy(t, f.dsn)
	f.db = pgtest.Open(t, driver, pgtest.WithParams(proxy.DSN(), "application_name="+f.name(t)))
	store, err := postgres.New(f.db, opts...)
	if err != nil {
		t.Fatal(err)
	}
	f.store = store
	// Closing a pool waits for the network, and fails for connections that are dead.
	t.Cleanup(func() {
		proxy.Thaw()
		f.db.SetMaxIdleConns(0)
	})
	return f, proxy
}

// name is what the server knows the store's connections by.
func (f *fixture) name(t testing.TB) string {
	t.Helper()
	return scan[string](t, f.admin, "SELECT current_database() || '/' || current_schema()")
}

// terminate ends the store's connections on the server, and returns when they have ended.
func (f *fixture) terminate(t testing.TB) {
	t.Helper()
	name := f.name(t)
	exec(t, f.admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", name)
	await(t, "the connections to end", func() bool {
		return scan[int](t, f.admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", name) == 0
	})
}

// operations are the calls, each as one that succeeds for the holder of record. Acquire and AcquireRead are for
// the work ID "free".
var operations = map[string]func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error{
	"Acquire": func(ctx context.Context, b backend.Backend, _ backend.LeaseRecord) error {
		_, err := b.Acquire(ctx, "free", "b", time.Minute)
		return err
	},
	"Checkpoint": func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		return b.Checkpoint(ctx, record, []byte("state"), time.Minute)
	},
	"Renew": renewMinute,
	"Release": func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		return b.Release(ctx, record, backend.ExitFinished)
	},
	"ReadCheckpoint": func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		_, err := b.ReadCheckpoint(ctx, record)
		return err
	},
	"Forget": func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		return b.Forget(ctx, record)
	},
	"Sweep": func(ctx context.Context, b backend.Backend, _ backend.LeaseRecord) error {
		_, err := b.Sweep(ctx, backend.SweepOptions{Retention: time.Hour})
		return err
	},
	"RenewBatch": func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		verdicts, err := b.(backend.BatchRenewer).RenewBatch(ctx, []backend.LeaseRecord{record}, time.Minute)
		return errors.Join(append(verdicts, err)...)
	},
	"Free": func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		_, err := b.(backend.Looker).Free(ctx, []string{record.WorkID})
		return err
	},
	"AcquireRead": func(ctx context.Context, b backend.Backend, _ backend.LeaseRecord) error {
		_, _, err := b.(backend.AcquireReader).AcquireRead(ctx, "free", "b", time.Minute)
		return err
	},
	"CheckpointRelease": func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		return b.(backend.CheckpointReleaser).CheckpointRelease(ctx, record, []byte("final"), backend.ExitFinished)
	},
	"ReleaseAfter": func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		return b.(backend.DelayedReleaser).ReleaseAfter(ctx, record, backend.ExitFinished, time.Microsecond)
	},
}

// warm makes all calls once, on leases of its own, so that every statement is prepared.
func warm(t testing.TB, b backend.Backend) {
	t.Helper()
	eachInOrder(t, b, "warm", func(name string, call func() error) {
		if err := call(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	})
}

func renewMinute(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
	return b.Renew(ctx, record, time.Minute)
}

// endsSoon makes a call whose context ends while it is under way, and returns its error.
func endsSoon(t *testing.T, what string, want error, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	if want == context.Canceled {
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
	}
	defer cancel()
	returned := make(chan error, 1)
	go func() { returned <- call(ctx) }()
	<-ctx.Done()
	ended := time.Now()
	select {
	case err := <-returned:
		took := time.Since(ended)
		if took > prompt {
			t.Logf("%s returned %v after its context", what, took)
		}
		if took > promptBound {
			t.Errorf("%s returned %v after its context", what, took)
		}
		mustMatch(t, err, want)
		mustNotMatch(t, err, backend.ErrFenced, backend.ErrLeaseHeld, backend.ErrLeaseExpired)
	case <-time.After(promptBound):
		t.Fatalf("%s has not returned %v after its context", what, promptBound)
	}
}

func TestEveryCallReturnsSoonAfterItsContext(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		for name, call := range operations {
			for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
				if err := renewMinute(t.Context(), f.store, record); err != nil {
					t.Fatal(err) // an open connection for the call to hang on
				}
				proxy.Freeze()
				endsSoon(t, name, want, func(ctx context.Context) error { return call(ctx, f.store, record) })
				proxy.Cut() // what was sent while frozen never arrives
				proxy.Thaw()
				await(t, "the connection to be gone", func() bool { return f.db.Stats().InUse == 0 })
			}
		}
		if err := renewMinute(t.Context(), f.store, record); err != nil {
			t.Errorf("a call that never reached the server cost the lease: %v", err)
		}
	})
}

// database/sql closes a statement on the network while it holds the pool's lock.
func TestCallReturnsSoonWhileThePoolIsLocked(t *testing.T) {
	f, proxy := newProxied(t, "pq")
	f.db.SetMaxOpenConns(1)
	record := acquire(t, f.store, "w", "a", time.Minute)
	stmt, err := f.db.Prepare("SELECT 1")
	if err != nil {
		t.Fatal(err)
	}
	proxy.Freeze()
	var wg sync.WaitGroup
	wg.Go(func() { _ = stmt.Close() })
	locked := make(chan struct{})
	go func() {
		for {
			seen := make(chan struct{})
			go func() {
				f.db.Stats()
				close(seen)
			}()
			select {
			case <-seen:
			case <-time.After(100 * time.Millisecond):
				close(locked)
				return
			}
		}
	}()
	<-locked
	endsSoon(t, "Renew", context.Canceled, func(ctx context.Context) error { return renewMinute(ctx, f.store, record) })
	proxy.Thaw()
	wg.Wait()
	if err := renewMinute(t.Context(), f.store, record); err != nil {
		t.Error(err)
	}
}

func TestCallsThatHangAreBounded(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		before := runtime.NumGoroutine()
		proxy.Freeze()
		const calls, atOnce = 2000, 20
		var wg sync.WaitGroup
		most := make(chan int, atOnce)
		for range atOnce {
			wg.Go(func() {
				highest := 0
				for range calls / atOnce {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
					err := renewMinute(ctx, f.store, record)
					if err == nil || ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "stuck") {
						t.Errorf("Renew returned %v", err)
					}
					cancel()
					highest = max(highest, f.db.Stats().OpenConnections)
				}
				most <- highest
			})
		}
		wg.Wait()
		highest := 0
		for range atOnce {
			highest = max(highest, <-most)
		}
		t.Logf("%d connections and %d goroutines more after %d calls", highest, runtime.NumGoroutine()-before, calls)
		if limit := 128 + atOnce + 2; highest > limit {
			t.Errorf("%d connections, more than %d", highest, limit)
		}
		proxy.Cut()
		proxy.Thaw()
		await(t, "what hangs to end", func() bool {
			f.db.SetMaxIdleConns(0) // idle connections have goroutines of the drivers' and the proxy's
			f.db.SetMaxIdleConns(2)
			return f.db.Stats().InUse == 0 && runtime.NumGoroutine() <= before
		})
		if err := renewMinute(t.Context(), f.store, record); err != nil {
			t.Errorf("after the network has come back: %v", err)
		}
	})
}

func TestStuckConnectionIsNotUsedAgain(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		if err := renewMinute(t.Context(), f.store, record); err != nil {
			t.Fatal(err)
		}
		proxy.DropReplies(false)
		endsSoon(t, "Renew", context.Canceled, func(ctx context.Context) error { return renewMinute(ctx, f.store, record) })
		proxy.PassReplies()
		for range 3 {
			if err := renewMinute(t.Context(), f.store, record); err != nil {
				t.Errorf("on a new connection: %v", err)
			}
		}
		if n := f.db.Stats().InUse; driver == "pq" && n != 1 {
			t.Errorf("%d connections are stuck", n) // the test has lost its point
		}
		proxy.Cut()
		await(t, "the stuck connection to end", func() bool { return f.db.Stats().InUse == 0 })
		await(t, "a renewal", func() bool { return renewMinute(t.Context(), f.store, record) == nil })
	})
}

func TestAcquireThatEndsWhileItWaitsForAConnectionSendsNothing(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		f.db.SetMaxOpenConns(1)
		acquire(t, f.store, "w", "a", time.Minute)
		conn, err := f.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		proxy.ResetTraffic()
		endsSoon(t, "Acquire", context.DeadlineExceeded, func(ctx context.Context) error {
			_, err := f.store.Acquire(ctx, "free", "b", time.Minute)
			if err == nil || !strings.Contains(err.Error(), "all 1 connections of the pool are in use") {
				t.Errorf("the error does not name the pool: %v", err)
			}
			return err
		})
		await(t, "the call to leave the queue", func() bool { return f.db.Stats().WaitDuration > 0 })
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.db.Ping(); err != nil { // it would have been behind the Acquire
			t.Fatal(err)
		}
		if n := proxy.Traffic().Count('B'); n != 0 {
			t.Errorf("%d statements were sent", n)
		}
	})
}

func TestCallLeavesTheQueueForALockWithItsContext(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		warm(t, f.store)
		for name, call := range operations {
			lock := begin(t, f.admin)
			exec(t, lock, "LOCK TABLE worklease_leases IN ACCESS EXCLUSIVE MODE")
			ctx, cancel := context.WithCancel(t.Context())
			returned := make(chan error, 1)
			go func() { returned <- call(ctx, f.store, record) }()
			f.awaitBlocked(t, 1)
			ended := time.Now()
			cancel()
			mustMatch(t, <-returned, context.Canceled)
			if took := time.Since(ended); took > promptBound {
				t.Errorf("%s returned %v after its context", name, took)
			}
			await(t, name+" to leave the queue", func() bool { return f.blocked(t) == 0 })
			t.Logf("%s left the queue after %v", name, time.Since(ended).Round(time.Millisecond))
			if err := lock.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
		if err := renewMinute(t.Context(), f.store, record); err != nil {
			t.Errorf("a cancelled call took effect: %v", err)
		}
		if n := scan[int](t, f.admin, "SELECT count(*) FROM worklease_leases"); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestTransactionCannotBeCommittedAfterACallThatHangs(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		exec(t, f.admin, "CREATE TABLE effects (n int)")
		record := acquire(t, f.store, "w", "a", time.Minute)
		tx := begin(t, f.db)
		exec(t, tx, "INSERT INTO effects VALUES (1)")
		proxy.Freeze()
		endsSoon(t, "Checkpoint", context.Canceled, func(ctx context.Context) error {
			return f.store.Checkpoint(postgres.InTx(ctx, tx), record, []byte("late"), time.Minute)
		})
		committed := make(chan error, 1)
		go func() { committed <- tx.Commit() }() // the error was ignored
		proxy.Thaw()
		if err := <-committed; err == nil {
			t.Error("the transaction was committed")
		}
		if n := scan[int](t, f.admin, "SELECT count(*) FROM effects"); n != 0 {
			t.Errorf("%d effects", n)
		}
	})
}

// A call that its caller has left may still be on its way to the server, with the state that it was given.
func TestStateIsNotReadAfterTheCallHasReturned(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		proxy := pgtest.NewProxy(t, f.dsn)
		store, err := postgres.New(pgtest.Open(t, driver, proxy.DSN()), postgres.WithoutPrepare())
		if err != nil {
			t.Fatal(err)
		}
		proxy.Delay(0, 100*time.Millisecond) // the new connection takes longer than the caller waits
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		state := []byte("AAAAAA")
		mustMatch(t, store.Checkpoint(ctx, record, state, time.Minute), context.DeadlineExceeded)
		copy(state, "BBBBBB")
		proxy.Delay(0, 0)
		await(t, "the store to let go", func() bool { return postgres.Stuck(store) == 0 })
		found, err := f.store.ReadCheckpoint(t.Context(), record)
		if err != nil || found.State != nil && string(found.State) != "AAAAAA" {
			t.Errorf("stored %q, %v", found.State, err)
		}
	})
}
