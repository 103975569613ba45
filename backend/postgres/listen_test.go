package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// listenerAt listens where the DSN leads: what package pgxlisten has, and no more.
type listenerAt string

func (dsn listenerAt) Listen(ctx context.Context, channel string, listening func(), heard func(string)) error {
	conn, err := pgx.Connect(ctx, string(dsn))
	if err != nil {
		return err
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	defer conn.Close(ended) // without waiting for the network
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	listening()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		heard(n.Payload)
	}
}

// mute never listens: with it a store only tells.
type mute struct{}

func (mute) Listen(ctx context.Context, _ string, _ func(), _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

// listeners is a Waker for stores that are not to be looked at.
type listeners struct {
	backend.Backend
	backend.Waker
}

// reports are what a store says of its listener.
type reports chan error

func (r reports) add(err error) { r <- err }

func (r reports) await(t *testing.T, ok func(error) bool) {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		select {
		case err := <-r:
			if ok(err) {
				return
			}
		case <-deadline:
			t.Fatal("no such report")
		}
	}
}

func works(err error) bool { return err == nil }

// overhear returns what is notified, all and on whatever table of the database, up to a call that makes a mark.
func overhear(t *testing.T, f *fixture) (upToNow func() []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), f.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	channel := scan[string](t, f.admin, "SELECT 'worklease_' || 'worklease_leases'::regclass::oid")
	if _, err := conn.Exec(t.Context(), "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	return func() (heard []string) {
		exec(t, f.admin, "SELECT pg_notify($1, 'mark')", channel)
		for {
			n, err := conn.WaitForNotification(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n.Payload == "mark" {
				return heard
			}
			heard = append(heard, n.Payload)
		}
	}
}

// tells are the operations in inOrder that leave a work ID free that was not.
// The delay of the ReleaseAfter is none.
var tells = map[string]bool{"Release": true, "CheckpointRelease": true, "ReleaseAfter": true, "Forget": true}

// With the option each operation is still one statement and one round trip.
func TestOnlyWhatFreesTellsAndOnlyWithAListener(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		for name, c := range map[string]struct {
			tells bool
			opts  []postgres.Option
		}{
			"without":          {false, nil},
			"with nil":         {false, []postgres.Option{postgres.WithListener(nil, nil)}},
			"with":             {true, []postgres.Option{postgres.WithListener(mute{}, nil)}},
			"with, unprepared": {true, []postgres.Option{postgres.WithListener(mute{}, nil), postgres.WithoutPrepare()}},
		} {
			t.Run(name, func(t *testing.T) {
				f, proxy := newProxied(t, driver, c.opts...)
				f.db.SetMaxOpenConns(1)
				warm(t, f.store)
				upToNow := overhear(t, f)
				tenure(t, f, proxy, func(op string, err error, traffic pgtest.Traffic) {
					trips := traffic.RoundTrips - traffic.Count('Q')
					if err != nil || trips != 1 && len(c.opts) < 2 { // lib/pq unprepared takes two
						t.Errorf("%s: %v, %d round trips, messages %s", op, err, traffic.RoundTrips, traffic.Messages)
					}
					if heard := upToNow(); (len(heard) == 1) != (c.tells && tells[op]) || len(heard) > 1 {
						t.Errorf("%s: heard %q", op, heard)
					}
				})
			})
		}
	})
}

// The server makes of a work ID what the store makes of it, whatever the encoding of the database, and also of one
// that would be too long for a notification.
func TestNotificationsFitAndAreUnderstood(t *testing.T) {
	for name, dsn := range map[string]string{"UTF8": pgtest.Schema(t), "LATIN1": pgtest.WithParams(database(t, "LOCALE 'C'", "LATIN1"), "client_encoding=UTF8")} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureAt(t, "pgx", dsn, postgres.WithListener(mute{}, nil))
			upToNow := overhear(t, f)
			for _, workID := range []string{"w", "é\\'", strings.Repeat("é", 5000)} {
				if err := f.store.Release(t.Context(), acquire(t, f.store, workID, "a", time.Hour), backend.ExitFinished); err != nil {
					t.Fatal(err)
				}
				if heard := upToNow(); len(heard) != 1 || heard[0] != postgres.Payload(workID) {
					t.Errorf("heard %q of %.20q", heard, workID)
				}
			}
		})
	}
}

// What is refused has freed nothing.
func TestRefusedCallsTellNobody(t *testing.T) {
	f := newFixture(t, "pgx", postgres.WithListener(mute{}, nil))
	upToNow := overhear(t, f)
	old := acquire(t, f.store, "w", "a", -time.Second)
	acquire(t, f.store, "w", "b", time.Hour)
	mustMatch(t, f.store.Release(t.Context(), old, backend.ExitFinished), backend.ErrFenced)
	mustMatch(t, f.store.Forget(t.Context(), old), backend.ErrFenced)
	mustMatch(t, f.store.CheckpointRelease(t.Context(), old, nil, backend.ExitFinished), backend.ErrFenced)
	if heard := upToNow(); len(heard) != 0 {
		t.Errorf("heard %q", heard)
	}
	acquire(t, f.store, "lapsed", "a", -time.Hour)
	exec(t, f.admin, "UPDATE worklease_leases SET updated_at = expires_at WHERE work_id = 'lapsed'")
	n, err := f.store.Sweep(t.Context(), backend.SweepOptions{Retention: time.Minute, IncludeExpired: true})
	if heard := upToNow(); n != 1 || err != nil || len(heard) != 1 {
		t.Errorf("%d swept, %v, heard %q", n, err, heard)
	}
}

// The server fails a statement whose notification it has no room for as it is committed.
func TestReleaseGoesThroughWhenTheQueueIsFull(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver, postgres.WithListener(mute{}, nil))
		schema := currentSchema(t, f.admin)
		exec(t, f.admin, `CREATE FUNCTION pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('test.told', 'yes', true); END $$;
			CREATE FUNCTION full_queue() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF current_setting('test.told', true) = 'yes' THEN
					RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000';
				END IF;
				RETURN NULL;
			END $$;
			CREATE CONSTRAINT TRIGGER full_queue AFTER UPDATE OR DELETE ON worklease_leases DEFERRABLE INITIALLY DEFERRED
				FOR EACH ROW EXECUTE FUNCTION full_queue()`)
		f.reopen(t, driver, "search_path="+schema+",pg_catalog")
		eachInOrder(t, f.store, "w", func(name string, call func() error) {
			if err := call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if n := scan[int](t, f.admin, "SELECT count(*) FROM worklease_leases WHERE work_id = 'w'"); n != 0 {
			t.Error("the last call, a Forget, has left the row")
		}
	})
}

// However many wait for it in a process, a release costs one attempt.
func TestPushedReleaseCostsOneAttempt(t *testing.T) {
	const waiters = 100
	f := newFixture(t, "pgx")
	f.db.SetMaxOpenConns(4)
	said := make(reports, 10)
	store, err := postgres.New(f.db, postgres.WithListener(listenerAt(f.dsn), said.add))
	if err != nil {
		t.Fatal(err)
	}
	record := acquire(t, store, "w", "rival", time.Hour)
	var (
		attempts attemptCounter
		all      sync.WaitGroup
	)
	lease, err := worklease.New(listeners{store, store}, worklease.Config{TTL: time.Minute, HolderID: "a", Observer: &attempts})
	if err != nil {
		t.Fatal(err)
	}
	for range waiters {
		all.Go(func() {
			token, err := lease.Acquire(t.Context(), "w", worklease.WithWaitForLease(), worklease.WithPollInterval(time.Hour))
			if err == nil {
				err = lease.Release(t.Context(), token, worklease.ExitFinished)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	await(t, "everybody to be refused", func() bool { return attempts.made.Load() >= waiters })
	said.await(t, works)
	if err := store.Release(t.Context(), record, backend.ExitFinished); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	// One before each wait and one after; one when listening began, and now and then one by somebody who was
	// told of a release that another who had just come has made use of.
	if n := attempts.made.Load(); n < 2*waiters || n > 2*waiters+waiters/10 {
		t.Errorf("%d attempts of %d waiters", n, waiters)
	}
}

// hangs is a listener that gets no answer.
type hangs struct{}

func (hangs) Listen(ctx context.Context, _ string, _ func(), _ func(string)) error {
	<-ctx.Done()
	return errors.New("no answer from that host")
}

// Whatever goes wrong, the report says once where, and what of it can be told.
func TestReportsSayWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		listener func(dsn string) postgres.Listener
		spoil    func(t *testing.T, f *fixture)
		want     string
	}{
		"the pool is in use": {func(dsn string) postgres.Listener { return listenerAt(dsn) }, func(t *testing.T, f *fixture) {
			f.db.SetMaxOpenConns(1)
			conn, err := f.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
		}, "all 1 connections of the pool are in use"},
		"the pool is closed":    {func(dsn string) postgres.Listener { return listenerAt(dsn) }, func(_ *testing.T, f *fixture) { _ = f.db.Close() }, "closed"},
		"the host is silent":    {func(string) postgres.Listener { return hangs{} }, nil, "no answer from that host"},
		"nothing can be heard":  {func(string) postgres.Listener { return listenerAt(pgtest.Database(t)) }, nil, "another database"},
		"the server is no such": {func(string) postgres.Listener { return listenerAt("postgres://nobody@127.0.0.1:1/") }, nil, "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "pgx")
			said := make(reports, 1000)
			store, err := postgres.New(f.db, postgres.WithListener(c.listener(f.dsn), said.add))
			if err != nil {
				t.Fatal(err)
			}
			postgres.Hurry(store, time.Hour, 200*time.Millisecond)
			if c.spoil != nil {
				c.spoil(t, f)
			}
			_, stop := store.Wake("w")
			t.Cleanup(stop)
			said.await(t, func(err error) bool {
				if n := strings.Count(fmt.Sprint(err), "postgres: "); err != nil && n != 1 {
					t.Errorf("it says %d times where: %v", n, err)
				}
				return strings.Contains(fmt.Sprint(err), c.want)
			})
		})
	}
}

// A pooler answers the LISTEN and loses what follows, a network that is silent says nothing at all.
func TestWhatCannotBeHeardIsNoticed(t *testing.T) {
	for name, via := range map[string]func(t *testing.T, dsn string) (listenTo string, silence func()){
		"a pooler": func(t *testing.T, dsn string) (string, func()) {
			return pgtest.NewBouncer(t, dsn), nil
		},
		"another database": func(t *testing.T, _ string) (string, func()) { return pgtest.Database(t), nil },
		"a silent network": func(t *testing.T, dsn string) (string, func()) {
			p := pgtest.NewProxy(t, dsn)
			return p.DSN(), p.Freeze
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureAt(t, "pgx", pgtest.Database(t))
			listenTo, silence := via(t, f.dsn)
			said := make(reports, 1000)
			store, err := postgres.New(f.db, postgres.WithListener(listenerAt(listenTo), said.add))
			if err != nil {
				t.Fatal(err)
			}
			postgres.Hurry(store, 100*time.Millisecond, 2*time.Second)
			_, stop := store.Wake("w")
			t.Cleanup(stop)
			if silence != nil {
				said.await(t, works)
				silence()
			}
			said.await(t, func(err error) bool { return errors.Is(err, postgres.ErrHeardNothing) })
		})
	}
}

func TestNothingIsLeftWhenNobodyWaits(t *testing.T) {
	f := newFixtureAt(t, "pgx", pgtest.Database(t))
	f.db.SetMaxOpenConns(1)
	f.admin.SetMaxOpenConns(1)
	said := make(reports, 10)
	store, err := postgres.New(f.db, postgres.WithListener(listenerAt(pgtest.WithParams(f.dsn, "application_name=ear")), said.add))
	if err != nil {
		t.Fatal(err)
	}
	postgres.Hurry(store, time.Minute, time.Minute)
	listening := func() int {
		return scan[int](t, f.admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ear'")
	}
	listening()
	if err := f.db.Ping(); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	for range 3 {
		var stops []func()
		for i := range 50 {
			_, stop := store.Wake(fmt.Sprint(i % 10))
			stops = append(stops, stop)
		}
		said.await(t, works)
		if n := listening(); n != 1 {
			t.Errorf("%d connections for 50 who wait", n)
		}
		for _, stop := range stops {
			stop()
		}
		await(t, "all to end", func() bool { return listening() == 0 && runtime.NumGoroutine() <= before })
	}
}

// The table is another one by now, under the same name.
func TestNewTableIsListenedTo(t *testing.T) {
	f := newFixture(t, "pgx")
	said := make(reports, 1000)
	store, err := postgres.New(f.db, postgres.WithListener(listenerAt(f.dsn), said.add))
	if err != nil {
		t.Fatal(err)
	}
	postgres.Hurry(store, 100*time.Millisecond, 2*time.Second)
	woken, stop := store.Wake("w")
	t.Cleanup(stop)
	said.await(t, works)
	<-woken // nobody knows what was before
	exec(t, f.admin, "DROP TABLE worklease_leases; "+postgres.Schema)
	said.await(t, func(err error) bool { return errors.Is(err, postgres.ErrHeardNothing) })
	said.await(t, works)
	<-woken // that something may have been missed
	if err := store.Release(t.Context(), acquire(t, store, "w", "a", time.Hour), backend.ExitFinished); err != nil {
		t.Fatal(err)
	}
	<-woken
}
