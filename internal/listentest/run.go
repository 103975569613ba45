package listentest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// Run runs the tests on the listeners that listener returns for connection strings.
func Run(t *testing.T, listener func(dsn string) postgres.Listener) {
	for name, test := range map[string]func(*testing.T, func(dsn string) postgres.Listener){
		"waiters are told":                            waitersAreTold,
		"what is lost is found again":                 whatIsLostIsFoundAgain,
		"a server that is restarted is listened to":   restarted,
		"what cannot be listened to is an error":      failures,
		"it returns with its context, come what may":  returnsWithItsContext,
		"a notification may come beside the answer":   notifiedAtOnce,
		"nothing is left of it, here and on a server": nothingLeft,
	} {
		t.Run(name, func(t *testing.T) { test(t, listener) })
	}
}

func waitersAreTold(t *testing.T, listener func(dsn string) postgres.Listener) {
	f := newFixture(t, listener, pgtest.Schema(t))
	for name, free := range map[string]func(backend.LeaseRecord) error{
		"Release": func(r backend.LeaseRecord) error { return f.rival.Release(t.Context(), r, backend.ExitRetired) },
		"Forget":  func(r backend.LeaseRecord) error { return f.rival.Forget(t.Context(), r) },
		"CheckpointRelease": func(r backend.LeaseRecord) error {
			return f.rival.CheckpointRelease(t.Context(), r, []byte("state"), backend.ExitAbandoned)
		},
		"ReleaseAfter": func(r backend.LeaseRecord) error {
			return f.rival.ReleaseAfter(t.Context(), r, backend.ExitFinished, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			record := f.hold(t, name)
			first := f.wait(t, name)
			if len(f.reports) == 0 {
				f.mustReport(t, true)
			}
			if err := free(record); err != nil {
				t.Fatal(err)
			}
			first.mustGet(t)
			if n := first.attempts.made.Load(); n > 3 { // one when listening began
				t.Errorf("%d attempts", n)
			}
			f.reports <- nil // it goes on for the next
		})
	}
}

// lose are ways in which a connection ends, each with what is to happen before there is another.
var lose = map[string]func(t *testing.T, f *fixture){
	"terminated": func(t *testing.T, f *fixture) {
		t.Helper()
		if _, err := f.admin.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'listening'"); err != nil {
			t.Fatal(err)
		}
	},
	"reset": func(_ *testing.T, f *fixture) { f.proxy.Cut() },
}

// What is given up while nobody listens is found when somebody does again.
func whatIsLostIsFoundAgain(t *testing.T, listener func(dsn string) postgres.Listener) {
	for name, end := range lose {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, listener, pgtest.Database(t)) // alone with its pg_stat_activity
			before, after := f.hold(t, "before"), f.hold(t, "after")
			first, second := f.wait(t, "before"), f.wait(t, "after")
			f.mustReport(t, true)
			f.proxy.Refuse()
			end(t, f)
			f.mustReport(t, false)
			f.release(t, before)
			f.proxy.Accept()
			first.mustGet(t)
			f.mustReport(t, true)
			f.release(t, after)
			second.mustGet(t)
			if n := first.attempts.made.Load() + second.attempts.made.Load(); n > 10 {
				t.Errorf("%d attempts", n)
			}
		})
	}
}

func restarted(t *testing.T, listener func(dsn string) postgres.Listener) {
	server := pgtest.New(t)
	f := newFixture(t, listener, server.Database(t))
	record := f.hold(t, "w")
	woken, stop := f.store.Wake("w")
	t.Cleanup(stop)
	f.mustReport(t, true)
	<-woken // nobody knows what was before
	server.StopImmediate()
	f.mustReport(t, false)
	server.Start()
	f.mustReport(t, true)
	<-woken
	await(t, "the release", func() bool { // the pool may have to notice yet that its connections are dead
		err := f.rival.Release(t.Context(), record, backend.ExitFinished)
		return err == nil || errors.Is(err, backend.ErrLeaseExpired)
	})
	<-woken
}

func failures(t *testing.T, listener func(dsn string) postgres.Listener) {
	standby := pgtest.New(t)
	if _, err := standby.Admin(t).Exec("COPY (SELECT) TO PROGRAM 'cat > standby.signal'"); err != nil {
		t.Fatal(err)
	}
	standby.Restart()
	for name, dsn := range map[string]string{
		"a standby":       standby.DSN(),
		"a wrong address": "postgres://nobody@127.0.0.1:1/nowhere?sslmode=disable",
		"no DSN":          "postgres://%%%",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := listener(dsn).Listen(ctx, "channel", func() { t.Errorf("%s is listened to", name) }, func(string) {})
		if err == nil || ctx.Err() != nil {
			t.Errorf("%s: %v", name, err)
		}
		if code := sqlState(err); name == "a standby" && code != "25006" {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

func sqlState(err error) string {
	if coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return coded.SQLState()
	}
	return ""
}

// returnsWithItsContext has the network fall silent in each stage.
func returnsWithItsContext(t *testing.T, listener func(dsn string) postgres.Listener) {
	for name, stage := range map[string]struct {
		ready  func(p *pgtest.Proxy) bool
		freeze func(p *pgtest.Proxy)
	}{
		"connecting": {func(p *pgtest.Proxy) bool { return p.Traffic().Connections > 0 }, (*pgtest.Proxy).Freeze},
		"sending":    {func(p *pgtest.Proxy) bool { return strings.Contains(p.Traffic().Messages, "Q") }, func(p *pgtest.Proxy) { p.DropReplies(false) }},
		"listening":  {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := pgtest.NewProxy(t, pgtest.Start(t).DSN())
			if stage.freeze != nil {
				stage.freeze(p)
			}
			ctx, cancel := context.WithCancel(t.Context())
			began, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				ended <- listener(p.DSN()).Listen(ctx, "channel", func() { close(began) }, func(string) {})
			}()
			if stage.ready != nil {
				await(t, "the stage", func() bool { return stage.ready(p) })
			} else {
				<-began
				p.Freeze()
			}
			cancel()
			select {
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%v, want that its context has ended", err)
				}
			case <-time.After(patience):
				t.Error("it does not return")
			}
		})
	}
}

// The server may send what was notified before it says that the LISTEN is done.
func notifiedAtOnce(t *testing.T, listener func(dsn string) postgres.Listener) {
	dsn := pgtest.Database(t)
	admin := pgtest.Open(t, "pgx", dsn)
	stopping, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stopping:
				return
			default:
			}
			if _, err := admin.Exec("NOTIFY channel, 'much'"); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		heard := 0
		err := listener(dsn).Listen(ctx, "channel", func() {}, func(payload string) {
			if payload != "much" {
				t.Errorf("heard %q", payload)
			}
			if heard++; heard == 20 {
				cancel()
			}
		})
		if heard < 20 || !errors.Is(err, context.Canceled) {
			t.Errorf("heard %d times: %v", heard, err)
		}
		cancel()
	}
	close(stopping)
	<-stopped
}

func nothingLeft(t *testing.T, listener func(dsn string) postgres.Listener) {
	dsn := pgtest.Database(t)
	admin := pgtest.Open(t, "pgx", dsn)
	admin.SetMaxOpenConns(1)
	connections := func() (n int) {
		if err := admin.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'listening'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	connections()
	before := runtime.NumGoroutine()
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		if err := listener(pgtest.WithParams(dsn, listening)).Listen(ctx, "channel", cancel, func(string) {}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	await(t, "goroutines and connections to end", func() bool { return runtime.NumGoroutine() <= before && connections() == 0 })
}
