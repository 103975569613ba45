package redis_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/redistest"
	"github.com/aetomala/worklease/leader"
	"github.com/aetomala/worklease/pool"
)

// process returns a Lease as one of several processes has it, with a client of its own.
func process(t *testing.T, addr, prefix, holder string, ttl time.Duration) worklease.Lease {
	t.Helper()
	store, _ := openWakeable(t, dial(t, &goredis.Options{Addr: addr, DialerRetries: 1}), prefix)
	lease, err := worklease.New(&blind{Backend: store, Waker: store}, worklease.Config{HolderID: holder, TTL: ttl})
	must(t, err)
	return lease
}

// A pool that stops hands all of its work to another, with its states, and at once: the other would not ask for an
// hour. No work runs in two pools.
func TestPoolsHandTheirWorkOver(t *testing.T) {
	addr, prefix := redistest.Addr(t), rand.Text()
	var workIDs []string
	for i := range 20 {
		workIDs = append(workIDs, fmt.Sprint("work ", i))
	}
	var (
		mu      sync.Mutex
		running = make(map[string]string)
		begun   = make(map[string]int)
	)
	start := func(holder, prior string) (stop func() error) {
		p, err := pool.New(process(t, addr, prefix, holder, time.Hour), pool.Config{WorkIDs: workIDs, IdleInterval: time.Hour},
			func(ctx context.Context, workID string, _ worklease.Token, found worklease.Checkpoint) ([]byte, error) {
				mu.Lock()
				if other, ok := running[workID]; ok {
					t.Errorf("%s runs in %s, and in %s too", workID, other, holder)
				}
				if string(found.State) != prior {
					t.Errorf("%s begins %s with %q", holder, workID, found.State)
				}
				running[workID] = holder
				begun[holder]++
				mu.Unlock()
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				delete(running, workID)
				return []byte("of " + holder), context.Cause(ctx)
			})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		return func() error {
			cancel()
			return <-done
		}
	}
	all := func(holder string) {
		t.Helper()
		await(t, "all work to run in "+holder, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return begun[holder] == len(workIDs)
		})
	}
	stopFirst := start("first", "")
	all("first")
	stopSecond := start("second", "of first")
	must(t, stopFirst())
	all("second")
	must(t, stopSecond())
}

// Three candidates have a leader again when their server was gone for longer than a TTL, and when the leader
// has stopped: then at once, since the others would not ask for an hour.
func TestCandidatesElectALeaderAfterAnOutage(t *testing.T) {
	type term struct {
		candidate int
		token     uint64
		over      <-chan struct{}
	}
	server := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	terms := make(chan term, 100)
	var stops []func()
	for i := range 3 {
		lease := process(t, server.Addr(), "team", fmt.Sprint("candidate ", i), 2*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			var token worklease.Token
			_ = leader.Run(ctx, lease, "w", leader.Config{
				IdleInterval: time.Hour, BackoffInterval: 10 * time.Millisecond,
				OnElected: func(_ context.Context, elected worklease.Token) { token = elected },
			}, func(ctx context.Context) error {
				terms <- term{i, token.FencingToken(), ctx.Done()}
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		stops = append(stops, func() {
			cancel()
			<-done
		})
		defer stops[i]()
	}
	var last term
	next := func() {
		t.Helper()
		select {
		case now := <-terms:
			if now.token <= last.token {
				t.Errorf("after token %d comes %d", last.token, now.token)
			}
			last = now
		case <-time.After(30 * time.Second):
			t.Fatal("nobody leads")
		}
	}
	next()
	server.Kill()
	<-last.over // by its window: nobody can tell it
	server.Start()
	next()
	stops[last.candidate]()
	next()
}
