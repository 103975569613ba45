package pgtest_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aetomala/worklease/internal/pgtest"
)

// through returns a proxy and a pool of one connection through it, which is open.
func through(t *testing.T, driver string) (*pgtest.Proxy, *sql.DB) {
	t.Helper()
	proxy := pgtest.NewProxy(t, pgtest.Schema(t))
	db := pgtest.Open(t, driver, proxy.DSN())
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE thing (n int)"); err != nil {
		t.Fatal(err)
	}
	return proxy, db
}

func TestProxyCountsRoundTripsAndMessages(t *testing.T) {
	t.Parallel()
	tests := []struct {
		driver     string
		prepared   bool
		roundTrips int
		messages   string
	}{
		{"pq", false, 2, "PDSBES"},
		{"pq", true, 1, "BES"},
		{"pq-binary", false, 1, "PBDES"},
		{"pgx", false, 1, "BES"},
		{"pgx", true, 1, "BES"},
		{"pgx-cache_describe", false, 1, "PBDES"},
		{"pgx-describe_exec", false, 2, "PDSBES"},
		{"pgx-exec", false, 1, "PBDES"},
		{"pgx-simple_protocol", false, 1, "Q"},
	}
	for _, tt := range tests {
		name := tt.driver
		if tt.prepared {
			name += " prepared"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, db := through(t, tt.driver)
			const query = "SELECT $1::text"
			call := func() error { return db.QueryRowContext(t.Context(), query, "x").Scan(new(string)) }
			if tt.prepared {
				stmt, err := db.PrepareContext(t.Context(), query)
				if err != nil {
					t.Fatal(err)
				}
				defer stmt.Close()
				call = func() error { return stmt.QueryRowContext(t.Context(), "x").Scan(new(string)) }
			}
			// The first call fills the driver's cache of statements.
			if err := call(); err != nil {
				t.Fatal(err)
			}
			proxy.ResetTraffic()
			if err := call(); err != nil {
				t.Fatal(err)
			}
			got := proxy.Traffic()
			if got.RoundTrips != tt.roundTrips || got.Messages != tt.messages {
				t.Errorf("%d round trips, messages %s; want %d, %s",
					got.RoundTrips, got.Messages, tt.roundTrips, tt.messages)
			}
			if n := strings.Count(tt.messages, "P"); got.Count('P') != n {
				t.Errorf("counted %d parses, want %d", got.Count('P'), n)
			}
		})
	}
}

func TestProxyFreezeHangsAQueryAndThawLetsItFinish(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pq", "pgx"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			proxy, db := through(t, driver)
			admin := pgtest.Start(t).Admin(t)
			backend := scan[int](t, db, "SELECT pg_backend_pid()")
			asked := func() string {
				return scan[string](t, admin, "SELECT query FROM pg_stat_activity WHERE pid = $1", backend)
			}
			proxy.Freeze()
			done := make(chan error, 1)
			go func() {
				_, err := db.ExecContext(context.Background(), "INSERT INTO thing VALUES (1)")
				done <- err
			}()
			select {
			case err := <-done:
				t.Fatalf("the query has ended on a frozen network: %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			if q := asked(); strings.HasPrefix(q, "INSERT") {
				t.Errorf("the server has got %q", q)
			}
			proxy.Thaw()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if n := scan[int](t, db, "SELECT count(*) FROM thing"); n != 1 {
				t.Errorf("%d rows, want 1", n)
			}
		})
	}
}

func TestProxyKeepsAFrozenServerFromSeeingTheClientGo(t *testing.T) {
	t.Parallel()
	proxy, db := through(t, "pgx")
	admin := pgtest.Start(t).Admin(t)
	backend := scan[int](t, db, "SELECT pg_backend_pid()")
	there := func() bool {
		return scan[bool](t, admin, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", backend)
	}
	proxy.Freeze()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if !there() {
			t.Fatal("the server has seen the connection close")
		}
	}
	proxy.Thaw()
	await(t, "the server to see the connection close", func() bool { return !there() })
}

func TestProxyDropsTheReplyOfAStatementThatRan(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		for _, thenClose := range []bool{true, false} {
			name := driver + " silent"
			if thenClose {
				name = driver + " closed"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				proxy, db := through(t, driver)
				admin := pgtest.Start(t).Admin(t)
				count := "SELECT count(*) FROM " + scan[string](t, db, "SELECT current_schema()") + ".thing"
				conn, err := db.Conn(t.Context()) // so that database/sql doesn't try again by itself
				if err != nil {
					t.Fatal(err)
				}
				proxy.DropReplies(thenClose)
				done := make(chan error, 1)
				go func() {
					_, err := conn.ExecContext(context.Background(), "INSERT INTO thing VALUES ($1)", 1)
					done <- err
				}()
				if !thenClose {
					await(t, "the row to be there", func() bool { return scan[int](t, admin, count) == 1 })
					if len(done) != 0 {
						t.Fatalf("the call has returned without a reply: %v", <-done)
					}
					proxy.Cut()
				}
				if err := <-done; err == nil {
					t.Error("the call has succeeded without a reply")
				}
				proxy.PassReplies()
				if n := scan[int](t, admin, count); n != 1 {
					t.Errorf("%d rows, want the 1 whose reply was lost", n)
				}
				_ = conn.Close() // tells again that the connection is bad
				if err := db.PingContext(t.Context()); err != nil {
					t.Errorf("a new connection: %v", err)
				}
			})
		}
	}
}

func TestProxyDelays(t *testing.T) {
	t.Parallel()
	proxy, db := through(t, "pgx")
	const each = 30 * time.Millisecond
	proxy.Delay(each, each)
	start := time.Now()
	// A reply of many pieces: their delays must not add up.
	if n := len(scan[string](t, db, "SELECT repeat('x', 4000000)")); n != 4000000 {
		t.Errorf("got %d bytes", n)
	}
	if took := time.Since(start); took < 2*each || took > 100*each {
		t.Errorf("took %v with %v each way", took, each)
	}
}

func TestProxyRefusesNewConnectionsOnly(t *testing.T) {
	t.Parallel()
	proxy, db := through(t, "pgx")
	proxy.Refuse()
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("the open connection: %v", err)
	}
	other := pgtest.Open(t, "pgx", proxy.DSN())
	if err := other.PingContext(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v, want connection refused", err)
	}
	proxy.Accept()
	if err := other.PingContext(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestProxyCutsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	proxy, db := through(t, "pq")
	admin := pgtest.Start(t).Admin(t)
	backend := scan[int](t, db, "SELECT pg_backend_pid()")
	done := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(context.Background(), "SELECT pg_sleep(600)")
		done <- err
	}()
	await(t, "the statement to run", func() bool {
		if len(done) != 0 {
			t.Fatalf("the statement has ended: %v", <-done)
		}
		return scan[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'", backend) == 1
	})
	proxy.Cut()
	if err := <-done; err == nil {
		t.Error("the statement has succeeded over a cut connection")
	}
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("after the cut: %v", err)
	}
	if _, err := admin.ExecContext(t.Context(), "SELECT pg_terminate_backend($1)", backend); err != nil {
		t.Error(err)
	}
}
