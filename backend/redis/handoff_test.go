package redis_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/redis"
	"github.com/aetomala/worklease/internal/redistest"
)

// blind is a store that wakes and has no other capability: one that can look, looks every 100 ms.
type blind struct {
	backend.Backend
	backend.Waker
	attempts atomic.Int64 // that are over
}

func (b *blind) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	defer b.attempts.Add(1)
	return b.Backend.Acquire(ctx, workID, holderID, ttl)
}

// wait acquires with a poll that the test would not outlast, and tells when it has.
func wait(t *testing.T, lease worklease.Lease, workID string) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := lease.Acquire(t.Context(), workID, worklease.WithWaitForLease(), worklease.WithPollInterval(time.Hour))
		done <- err
	}()
	return done
}

func mustBeHanded(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the lease is not handed over")
	}
}

// Whoever waits gets the lease from another process without a poll, in each way that frees one.
func TestLeaseIsHandedOverWithoutAPoll(t *testing.T) {
	for name, free := range map[string]func(*redis.Backend, backend.LeaseRecord) error{
		"release": func(b *redis.Backend, r backend.LeaseRecord) error {
			return b.Release(t.Context(), r, backend.ExitFinished)
		},
		"checkpoint and release": func(b *redis.Backend, r backend.LeaseRecord) error {
			return b.CheckpointRelease(t.Context(), r, []byte("s"), backend.ExitAbandoned)
		},
		"forget": func(b *redis.Backend, r backend.LeaseRecord) error { return b.Forget(t.Context(), r) },
	} {
		t.Run(name, func(t *testing.T) {
			addr, prefix := redistest.Addr(t), rand.Text()
			holder, _ := openWakeable(t, dial(t, &goredis.Options{Addr: addr}), prefix)
			mine := acquire(t, holder, "w", "h", time.Hour)
			store, said := openWakeable(t, dial(t, &goredis.Options{Addr: addr}), prefix)
			waiting := &blind{Backend: store, Waker: store}
			lease, err := worklease.New(waiting, worklease.Config{HolderID: "next", TTL: time.Hour})
			must(t, err)
			done := wait(t, lease, "w")
			must(t, said.next(t))
			await(t, "the attempt that a new connection costs", func() bool { return waiting.attempts.Load() >= 2 })
			must(t, free(holder, mine))
			mustBeHanded(t, done)
		})
	}
}

// What becomes free around a restart of the server, before the connection is there again or after, is told.
func TestReleaseAroundARestartIsTold(t *testing.T) {
	server := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	client := dial(t, &goredis.Options{Addr: server.Addr()})
	holder, _ := openWakeable(t, client, "team")
	mine := acquire(t, holder, "w", "h", time.Hour)
	store, said := openWakeable(t, client, "team")
	woken, stop := store.Wake("w")
	defer stop()
	must(t, said.next(t))
	mustWake(t, woken)
	server.Kill()
	mustFail(t, said.next(t))
	server.Start()
	await(t, "the release", func() bool { return holder.Release(t.Context(), mine, backend.ExitFinished) == nil })
	for {
		mustWake(t, woken)
		if _, err := store.Acquire(t.Context(), "w", "next", time.Hour); err == nil {
			return // the wake-up before was that of the new connection, and the release came after it
		}
	}
}

// BenchmarkHandoff tells how long after the call of Release 100 waiters have their leases, each with a lease of its
// own, where they poll every 100 ms and where they are woken.
func BenchmarkHandoff(b *testing.B) {
	const waiters = 100
	for _, row := range []struct {
		name string
		poll time.Duration
		opts []redis.Option
	}{{"polled", 0, nil}, {"woken", time.Hour, []redis.Option{redis.WithWakeUps(nil)}}} {
		b.Run(row.name, func(b *testing.B) {
			opts := append(row.opts, redis.WithPrefix(rand.Text()))
			holder, err := redis.New(server(b), opts...)
			must(b, err)
			store, err := redis.New(server(b), opts...)
			must(b, err)
			var took []time.Duration
			for round := range b.N {
				took = append(took, handoffs(b, holder, store, round, waiters, row.poll)...)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// handoffs measures one hand-over of each of n leases, one after another.
func handoffs(b *testing.B, holder, store *redis.Backend, round, n int, poll time.Duration) []time.Duration {
	b.Helper()
	lease, err := worklease.New(store, worklease.Config{HolderID: "next", TTL: time.Hour})
	must(b, err)
	var (
		held     = make([]backend.LeaseRecord, n)
		released = make([]time.Time, n)
		took     = make([]time.Duration, n)
		got      = make([]chan time.Time, n)
		waiting  sync.WaitGroup
	)
	for i := range n {
		held[i] = acquire(b, holder, fmt.Sprint(round, i), "h", time.Hour)
		got[i] = make(chan time.Time, 1)
		opts := []worklease.AcquireOption{worklease.WithWaitForLease()}
		if poll > 0 {
			opts = append(opts, worklease.WithPollInterval(poll))
		}
		waiting.Go(func() {
			if _, err := lease.Acquire(b.Context(), held[i].WorkID, opts...); err != nil {
				b.Error(err)
			}
			got[i] <- time.Now()
		})
	}
	time.Sleep(300 * time.Millisecond) // all of them wait by then, or the figures say less
	for i := range n {
		released[i] = time.Now()
		must(b, holder.Release(b.Context(), held[i], backend.ExitFinished))
		took[i] = (<-got[i]).Sub(released[i])
	}
	waiting.Wait()
	return took
}
