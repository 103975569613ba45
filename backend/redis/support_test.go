package redis_test

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/redis"
	"github.com/aetomala/worklease/internal/redistest"
)

func dial(t testing.TB, opts *goredis.Options) *goredis.Client {
	t.Helper()
	client := goredis.NewClient(opts)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// server returns a client of the server that the tests share.
func server(t testing.TB) *goredis.Client {
	t.Helper()
	return dial(t, &goredis.Options{Addr: redistest.Addr(t)})
}

// miniature returns a client of a server that is Go.
func miniature(t testing.TB) (*goredis.Client, *miniredis.Miniredis) {
	t.Helper()
	mini := miniredis.RunT(t)
	return dial(t, &goredis.Options{Addr: mini.Addr()}), mini
}

// cluster returns a client of a cluster of one server, which has all the slots.
func cluster(t testing.TB) *goredis.ClusterClient {
	t.Helper()
	s := redistest.New(t, "--cluster-enabled", "yes")
	node := dial(t, &goredis.Options{Addr: s.Addr()})
	if err := node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	await(t, "the cluster to be up", func() bool {
		return node.Set(t.Context(), "up", "", 0).Err() == nil
	})
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{s.Addr()}})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// open returns a store with no rows.
func open(t testing.TB, client goredis.UniversalClient) (store *redis.Backend, prefix string) {
	t.Helper()
	prefix = rand.Text()
	store, err := redis.New(client, redis.WithPrefix(prefix))
	if err != nil {
		t.Fatal(err)
	}
	return store, prefix
}

func acquire(t testing.TB, b backend.Backend, workID, holderID string, ttl time.Duration) backend.LeaseRecord {
	t.Helper()
	record, err := b.Acquire(t.Context(), workID, holderID, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustMatch(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error %v does not match %v", err, target)
	}
}

var sentinels = []error{backend.ErrFenced, backend.ErrLeaseHeld, backend.ErrLeaseExpired, backend.ErrInvalidExitMode}

func mustFail(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		t.Error("there is no error")
	}
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			t.Errorf("error %v matches %v", err, sentinel)
		}
	}
}

// await waits for what another process is to do.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
