package bench

import (
	"context"
	"crypto/rand"
	"regexp"
	"strconv"
	"testing"

	"github.com/bsm/redislock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend/redis"
	"github.com/aetomala/worklease/internal/redistest"
)

// redisServer is a server as nobody has configured it, but for the snapshots, which it does not take.
type redisServer struct{ addr, pid string }

var processID = regexp.MustCompile(`process_id:(\d+)`)

func newRedis(t *testing.T) *redisServer {
	t.Helper()
	if !*tables {
		return &redisServer{addr: redistest.Addr(t)}
	}
	s := &redisServer{addr: redistest.New(t).Addr()}
	info, err := s.client(t, 1).Info(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	s.pid = processID.FindStringSubmatch(info)[1]
	return s
}

// client returns a client with so many connections.
func (s *redisServer) client(t *testing.T, connections int) *goredis.Client {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: s.addr, PoolSize: connections, MinIdleConns: connections})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// store returns a store with so many connections, and no rows.
func (s *redisServer) store(t *testing.T, connections int) *redis.Backend {
	t.Helper()
	store, err := redis.New(s.client(t, connections), redis.WithPrefix(rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// obtainRelease takes and gives back locks of redislock that nobody else wants.
func (s *redisServer) obtainRelease(t *testing.T, connections int) op {
	t.Helper()
	client := redislock.New(s.client(t, connections))
	return func(ctx context.Context, c, i int) error {
		lock, err := client.Obtain(ctx, "lock "+strconv.Itoa(nth(c, i)), ttl, nil)
		if err != nil {
			return err
		}
		return lock.Release(ctx)
	}
}
