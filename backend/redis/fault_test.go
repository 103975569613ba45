package redis_test

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/prompt"
	"github.com/aetomala/worklease/internal/redistest"
)

// A server forgets its scripts when it restarts, and when it is told to.
func TestScriptsThatTheServerForgot(t *testing.T) {
	client := dial(t, &goredis.Options{Addr: redistest.New(t).Addr()})
	store, _ := open(t, client)
	for range 2 {
		mine := acquire(t, store, "w", "h", time.Hour)
		must(t, client.ScriptFlush(t.Context()).Err())
		must(t, store.Checkpoint(t.Context(), mine, []byte("s"), time.Hour))
		must(t, client.ScriptFlush(t.Context()).Err())
		must(t, store.Release(t.Context(), mine, backend.ExitFinished))
	}
}

// A server that was killed is an error of its own kind; one that is back knows what it has saved.
func TestServerIsKilled(t *testing.T) {
	server := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	store, _ := open(t, dial(t, &goredis.Options{Addr: server.Addr(), DialerRetries: 1}))
	mine := acquire(t, store, "w", "h", time.Hour)
	must(t, store.Checkpoint(t.Context(), mine, []byte("s"), time.Hour))
	server.Kill()
	mustFail(t, store.Renew(t.Context(), mine, time.Hour))
	_, err := store.Acquire(t.Context(), "another", "h", time.Hour)
	mustFail(t, err)
	server.Start()
	await(t, "the store to be back", func() bool { return store.Renew(t.Context(), mine, time.Hour) == nil })
	if found, err := store.ReadCheckpoint(t.Context(), mine); err != nil || string(found.State) != "s" {
		t.Errorf("found %q, %v", found.State, err)
	}
	_, err = store.Acquire(t.Context(), "w", "another", time.Hour)
	mustMatch(t, err, backend.ErrLeaseHeld)
}

// go-redis repeats a command that got no answer. A Release that was applied would then be refused, and its
// caller be told that the lease had lapsed.
func TestNoCallIsMadeTwice(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Addr(t))
	direct, behind := server(t), dial(t, &goredis.Options{Addr: proxy.Addr(), MaxRetries: 3})
	store, prefix := open(t, behind)
	other := acquire(t, store, "other", "h", time.Hour)
	must(t, store.Renew(t.Context(), other, time.Hour)) // from here on the scripts are known
	must(t, store.Release(t.Context(), other, backend.ExitFinished))
	mine := acquire(t, store, "w", "h", time.Hour)
	key := "{" + prefix + "}:l:w"
	proxy.LoseAnswers(key)
	mustFail(t, store.Renew(t.Context(), mine, time.Hour))
	mustFail(t, store.Release(t.Context(), mine, backend.ExitFinished))
	if n := proxy.Lost(); n != 2 {
		t.Errorf("two calls were made %d times", n)
	}
	if exit, err := direct.HGet(t.Context(), key, "exit").Result(); err != nil || exit != "finished" {
		t.Errorf("the exit is %q, %v", exit, err)
	}
}

// A silent network holds nobody up, and leaves no lease behind that nobody knows of.
func TestCallsReturnWithTheirContext(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Addr(t))
	store, prefix := open(t, dial(t, &goredis.Options{Addr: proxy.Addr(), ReadTimeout: time.Minute}))
	mine := acquire(t, store, "w", "h", time.Hour)
	proxy.Freeze()
	for name, call := range map[string]func(context.Context) error{
		"renew": func(ctx context.Context) error { return store.Renew(ctx, mine, time.Hour) },
		"acquire": func(ctx context.Context) error {
			_, err := store.Acquire(ctx, "another", "h", time.Hour)
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- call(ctx) }()
		if name == "acquire" { // it is to have been made
			await(t, "the lease", func() bool {
				n, err := server(t).Exists(t.Context(), "{"+prefix+"}:l:another").Result()
				return err == nil && n == 1
			})
		}
		cancel()
		select {
		case err := <-done:
			mustMatch(t, err, context.Canceled)
			mustFail(t, err)
		case <-time.After(30 * time.Second): // half of what the client would wait
			t.Fatalf("%s does not return", name)
		}
	}
	proxy.Thaw()
	await(t, "the acquisition to be undone", func() bool {
		n, err := server(t).Exists(t.Context(), "{"+prefix+"}:l:another").Result()
		return err == nil && n == 0
	})
}

// However many calls hang, each returns with its context, those that come then fail at once, and what lingers is
// gone when the network is back, also with a client that would wait for an hour and has a connection for each.
func TestCallsThatHangAreBounded(t *testing.T) {
	const calls = prompt.MaxStuck + 20
	proxy := redistest.NewProxy(t, redistest.Addr(t))
	client := dial(t, &goredis.Options{Addr: proxy.Addr(), ReadTimeout: time.Hour, PoolSize: calls, MinIdleConns: calls})
	store, _ := open(t, client)
	mine := acquire(t, store, "w", "h", time.Hour)
	await(t, "connections", func() bool { return client.PoolStats().IdleConns == calls })
	proxy.Freeze()
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan error, calls)
	for range calls {
		go func() { answers <- store.Renew(ctx, mine, time.Hour) }()
	}
	mustReturn := func() {
		t.Helper()
		select {
		case err := <-answers:
			mustFail(t, err)
		case <-time.After(30 * time.Second):
			t.Fatal("a call does not return")
		}
	}
	await(t, "each call to have a connection", func() bool { return client.PoolStats().IdleConns == 0 })
	cancel()
	for range calls {
		mustReturn()
	}
	patient, end := context.WithCancel(t.Context())
	defer end()
	go func() { answers <- store.Renew(patient, mine, time.Hour) }()
	mustReturn()
	proxy.Thaw()
	await(t, "calls to be made again", func() bool { return store.Renew(patient, mine, time.Hour) == nil })
}

// What an undone acquisition had found is found by the next.
func TestUndoRestoresWhatWasFound(t *testing.T) {
	for _, exit := range []backend.ExitMode{backend.ExitFinished, backend.ExitAbandoned, backend.ExitRetired, backend.ExitExpired} {
		t.Run(exit.String(), func(t *testing.T) {
			proxy := redistest.NewProxy(t, redistest.Addr(t))
			direct := server(t)
			store, prefix := open(t, dial(t, &goredis.Options{Addr: proxy.Addr(), ReadTimeout: time.Minute}))
			first := acquire(t, store, "w", "h", time.Hour)
			must(t, store.Checkpoint(t.Context(), first, []byte("s"), time.Hour))
			if exit == backend.ExitExpired {
				must(t, store.Renew(t.Context(), first, -1))
			} else {
				must(t, store.Release(t.Context(), first, exit))
			}
			holder := func() string {
				return direct.HGet(t.Context(), "{"+prefix+"}:l:w", "holder").Val()
			}
			proxy.Freeze()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				_, err := store.Acquire(ctx, "w", "gone", time.Hour)
				done <- err
			}()
			await(t, "the acquisition", func() bool { return holder() == "gone" })
			cancel()
			mustMatch(t, <-done, context.Canceled)
			proxy.Thaw()
			await(t, "the undoing", func() bool { return holder() == "h" })
			if err := (rowReader{direct, prefix}).check(t); err != nil {
				t.Error(err)
			}
			_, found, err := store.AcquireRead(t.Context(), "w", "next", time.Hour)
			if err != nil || string(found.State) != "s" || found.PrevExit != exit || found.PrevHolderID != "h" {
				t.Errorf("found %+v, %v", found, err)
			}
			mustMatch(t, store.Renew(t.Context(), first, time.Hour), backend.ErrFenced)
		})
	}
}

func (r rowReader) check(t *testing.T) error {
	_, err := r.Rows(t.Context())
	return err
}
