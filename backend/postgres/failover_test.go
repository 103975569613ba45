package postgres_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// sideBySide is eachDriver for tests that spend their time waiting.
func sideBySide(t *testing.T, test func(t *testing.T, driver string)) {
	eachDriver(t, func(t *testing.T, driver string) {
		t.Parallel()
		test(t, driver)
	})
}

// predecessors are the states of a row before somebody acquires it, as made by "a" with the state "kept".
var predecessors = map[backend.ExitMode]func(t *testing.T, f *fixture, record backend.LeaseRecord){
	backend.ExitFinished:  releaseAs(backend.ExitFinished),
	backend.ExitAbandoned: releaseAs(backend.ExitAbandoned),
	backend.ExitRetired:   releaseAs(backend.ExitRetired),
	backend.ExitExpired: func(t *testing.T, f *fixture, _ backend.LeaseRecord) {
		exec(t, f.admin, "UPDATE worklease_leases SET expires_at = now() - interval '1 s'")
	},
}

func releaseAs(mode backend.ExitMode) func(*testing.T, *fixture, backend.LeaseRecord) {
	return func(t *testing.T, f *fixture, record backend.LeaseRecord) {
		t.Helper()
		if err := f.store.Release(t.Context(), record, mode); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAcquisitionThatNobodyHeardOfIsUndone(t *testing.T) {
	sideBySide(t, func(t *testing.T, driver string) {
		for prev := backend.ExitNone; prev <= backend.ExitExpired; prev++ {
			t.Run(prev.String(), func(t *testing.T) {
				f, proxy := newProxied(t, driver)
				wantHolder, wantState := "", ""
				if prev != backend.ExitNone {
					wantHolder, wantState = "a", "kept"
					record := acquire(t, f.store, "w", "a", time.Minute)
					if err := f.store.Checkpoint(t.Context(), record, []byte("kept"), time.Minute); err != nil {
						t.Fatal(err)
					}
					predecessors[prev](t, f, record)
				}
				warm(t, f.store)
				lock := begin(t, f.admin)
				exec(t, lock, "LOCK TABLE worklease_leases IN SHARE MODE")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				returned := make(chan error, 1)
				go func() {
					_, err := f.store.Acquire(ctx, "w", "nobody", time.Hour)
					returned <- err
				}()
				f.awaitBlocked(t, 1)
				proxy.Freeze() // the statement has arrived; its reply will not before the caller has left
				if err := lock.Commit(); err != nil {
					t.Fatal(err)
				}
				await(t, "the acquisition", func() bool {
					return scan[int](t, f.admin, "SELECT count(*) FROM worklease_leases WHERE holder_id = 'nobody'") == 1
				})
				cancel()
				mustMatch(t, <-returned, context.Canceled)
				proxy.Thaw()
				var next backend.LeaseRecord
				await(t, "the lease to be free", func() (free bool) {
					var err error
					next, err = f.store.Acquire(t.Context(), "w", "b", time.Minute)
					return err == nil
				})
				found, err := f.store.ReadCheckpoint(t.Context(), next)
				if err != nil || found.PrevExit != prev || found.PrevHolderID != wantHolder || string(found.State) != wantState {
					t.Errorf("read %v of %q, state %q, %v; want %v of %q, %q",
						found.PrevExit, found.PrevHolderID, found.State, err, prev, wantHolder, wantState)
				}
			})
		}
	})
}

// A reply that is lost with its connection leaves the caller in doubt, and the store not.
func TestCallWhoseReplyIsLostCanBeMadeAgain(t *testing.T) {
	sideBySide(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		warm(t, f.store)
		lose := func(what string, call func() error) {
			t.Helper()
			proxy.DropReplies(true)
			err := call()
			proxy.PassReplies()
			t.Logf("%s whose reply is lost: %v", what, err)
		}
		renew := func() error { return renewMinute(t.Context(), f.store, record) }
		lose("Renew", renew)
		await(t, "a renewal", func() bool { return renew() == nil })
		save := func() error { return f.store.Checkpoint(t.Context(), record, []byte("state"), time.Minute) }
		lose("Checkpoint", save)
		await(t, "a checkpoint", func() bool { return save() == nil })
		release := func() error { return f.store.Release(t.Context(), record, backend.ExitFinished) }
		lose("Release", release)
		await(t, "an answer", func() bool { return errors.Is(release(), backend.ErrLeaseExpired) })
		next := acquire(t, f.store, "w", "b", time.Minute)
		found, err := f.store.ReadCheckpoint(t.Context(), next)
		if err != nil || found.PrevExit != backend.ExitFinished || found.PrevHolderID != "a" || string(found.State) != "state" {
			t.Errorf("the successor reads %+v, %v", found, err)
		}
		// Nobody knows the token of an acquisition whose reply is lost: the lease lapses.
		lose("Acquire", func() error {
			_, err := f.store.Acquire(t.Context(), "lost", "a", time.Second)
			if err == nil {
				t.Error("Acquire succeeded without a reply")
			}
			return err
		})
		await(t, "the lease to lapse", func() bool {
			_, err := f.store.Acquire(t.Context(), "lost", "b", time.Minute)
			return err == nil
		})
	})
}

// renewAgain renews until it succeeds, and returns how often it failed before.
func renewAgain(t *testing.T, f *fixture, record backend.LeaseRecord) (failures int) {
	t.Helper()
	await(t, "a renewal", func() bool {
		err := renewMinute(t.Context(), f.store, record)
		mustNotMatch(t, err, backend.ErrFenced, backend.ErrLeaseExpired)
		if err != nil {
			failures++
		}
		return err == nil
	})
	return failures
}

func TestLeaseOutlivesItsConnections(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		f.db.SetMaxOpenConns(1)
		record := acquire(t, f.store, "w", "a", time.Minute)
		for name, end := range map[string]func(){
			"terminated": func() { f.terminate(t) },
			"cut":        proxy.Cut,
		} {
			end()
			if n := renewAgain(t, f, record); n > 1 {
				t.Errorf("%s: %d renewals failed", name, n)
			}
		}
	})
}

func TestLeaseOutlivesTheServersProcess(t *testing.T) {
	server := pgtest.New(t)
	eachDriver(t, func(t *testing.T, driver string) {
		f, _ := proxiedTo(t, driver, server.Schema(t))
		f.db.SetMaxOpenConns(1)
		record := acquire(t, f.store, "w", "a", time.Minute)
		if err := f.store.Checkpoint(t.Context(), record, []byte("state"), time.Minute); err != nil {
			t.Fatal(err)
		}
		for name, restart := range map[string]func(){
			"restart": server.Restart,
			"kill":    func() { server.Kill(); server.Start() },
		} {
			restart()
			if n := renewAgain(t, f, record); n > 1 {
				t.Errorf("%s: %d renewals failed", name, n)
			}
		}
		await(t, "the test's own connections", func() bool { return f.admin.Ping() == nil })
		if found, err := f.store.ReadCheckpoint(t.Context(), record); err != nil || string(found.State) != "state" {
			t.Errorf("read %q, %v", found.State, err)
		}
		if next := acquire(t, f.store, "other", "a", time.Minute); next.FencingToken <= record.FencingToken {
			t.Errorf("token %d after %d", next.FencingToken, record.FencingToken)
		}
	})
}

// The pool goes on to hold connections that began while writes were turned off, as after a failover it
// may hold some to a server that is a standby now.
func TestWritesGoOnWhenTheServerTakesThemAgain(t *testing.T) {
	sideBySide(t, func(t *testing.T, driver string) {
		f, _ := proxiedTo(t, driver, pgtest.Database(t))
		f.admin.SetMaxOpenConns(1) // which stays as it began
		record := acquire(t, f.store, "w", "a", time.Minute)
		alter := func(what string) {
			exec(t, f.admin, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I "+what+"', current_database()); END $$")
		}
		alter("SET default_transaction_read_only = on")
		f.db.SetMaxIdleConns(0)
		f.db.SetMaxIdleConns(5)
		var conns []*sql.Conn
		for range 5 {
			conn, err := f.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
		}
		err := renewMinute(t.Context(), f.store, record)
		mustNotMatch(t, err, backend.ErrFenced, backend.ErrLeaseExpired, backend.ErrLeaseHeld)
		if err == nil || !strings.Contains(err.Error(), "the server is read-only") {
			t.Errorf("the renewal returned %v", err)
		}
		alter("RESET default_transaction_read_only")
		t.Logf("%d renewals failed", renewAgain(t, f, record))
	})
}

// behind is a context that has not noticed yet that its time is over.
type behind struct{ context.Context }

func (behind) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// unreachable is a driver whose network is.
type unreachable struct{}

func (unreachable) Connect(context.Context) (driver.Conn, error) { return nil, os.ErrDeadlineExceeded }
func (unreachable) Driver() driver.Driver                        { return nil }

func TestErrorOfADriverThatIsAheadOfTheContextMatchesIt(t *testing.T) {
	db := sql.OpenDB(unreachable{})
	defer db.Close()
	store, err := postgres.New(db)
	if err != nil {
		t.Fatal(err)
	}
	mustMatch(t, renewMinute(behind{t.Context()}, store, backend.LeaseRecord{}), context.DeadlineExceeded, os.ErrDeadlineExceeded)
}
