package listentest

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// patience is for what another process is to do, on a machine that is busy.
const patience = time.Minute

// fixture is a store that listens by way of a proxy, and a second one in the same table that does the rest.
type fixture struct {
	admin   *sql.DB
	store   *postgres.Backend
	rival   *postgres.Backend
	proxy   *pgtest.Proxy
	reports chan error
}

// listening is the name by which the server knows what the listener under test has opened.
const listening = "application_name=listening"

func newFixture(t *testing.T, listener func(dsn string) postgres.Listener, dsn string) *fixture {
	t.Helper()
	f := &fixture{admin: pgtest.Open(t, "pgx", dsn), proxy: pgtest.NewProxy(t, dsn), reports: make(chan error, 100)}
	if _, err := f.admin.Exec(postgres.Schema); err != nil {
		t.Fatal(err)
	}
	f.store = newStore(t, dsn, listener(pgtest.WithParams(f.proxy.DSN(), listening)), func(err error) { f.reports <- err })
	f.rival = newStore(t, dsn, nowhere{}, nil)
	return f
}

func newStore(t *testing.T, dsn string, l postgres.Listener, report func(error)) *postgres.Backend {
	t.Helper()
	store, err := postgres.New(pgtest.Open(t, "pgx", dsn), postgres.WithListener(l, report))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// nowhere is for a process that tells and does not wait.
type nowhere struct{}

func (nowhere) Listen(ctx context.Context, _ string, _ func(), _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

// mustReport waits until the listener is reported to be broken, or to work.
func (f *fixture) mustReport(t *testing.T, works bool) (err error) {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case err := <-f.reports:
			if (err == nil) == works {
				return err
			}
		case <-deadline:
			t.Fatalf("listening was never reported to work = %t", works)
		}
	}
}

// wakes hides that the store can be looked at, so that nobody learns of a release but by being told.
type wakes struct {
	backend.Backend
	backend.Waker
}

// waiter waits for a lease without asking for it a second time unless it is told to.
type waiter struct {
	attempts attempts
	got      chan error
}

type attempts struct {
	worklease.NoopObserver
	made atomic.Int64
}

func (a *attempts) OnAcquire(context.Context, worklease.AcquireEvent) { a.made.Add(1) }

// wait returns when the waiter has been refused once.
func (f *fixture) wait(t *testing.T, workID string) *waiter {
	t.Helper()
	w := &waiter{got: make(chan error, 1)}
	lease, err := worklease.New(wakes{f.store, f.store}, worklease.Config{TTL: time.Minute, HolderID: "waiter", Observer: &w.attempts})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	go func() {
		defer cancel()
		_, err := lease.Acquire(ctx, workID, worklease.WithWaitForLease(), worklease.WithPollInterval(time.Hour))
		w.got <- err
	}()
	await(t, "the waiter to be refused", func() bool { return w.attempts.made.Load() > 0 })
	return w
}

func (w *waiter) mustGet(t *testing.T) {
	t.Helper()
	if err := <-w.got; err != nil {
		t.Errorf("after %d attempts: %v", w.attempts.made.Load(), err)
	}
}

func (f *fixture) hold(t *testing.T, workID string) backend.LeaseRecord {
	t.Helper()
	record, err := f.rival.Acquire(t.Context(), workID, "rival", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func (f *fixture) release(t *testing.T, record backend.LeaseRecord) {
	t.Helper()
	if err := f.rival.Release(t.Context(), record, backend.ExitFinished); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
