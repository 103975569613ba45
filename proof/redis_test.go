package proof

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/redis"
	"github.com/aetomala/worklease/internal/redistest"
)

func inRedis(tb testing.TB) arena {
	store, _ := redisStore(tb, redistest.Addr(tb))
	return arena{fresh: func() backend.Backend { return store }}
}

// underKillsInRedis is a Redis store all of whose connections are closed while they are used. The client would
// send again what got no answer; that the store does not let it is part of what the histories tell.
func underKillsInRedis(tb testing.TB) arena {
	server := redistest.New(tb)
	store, _ := redisStore(tb, server.Addr())
	admin := redisClient(tb, server.Addr())
	a := arena{fresh: func() backend.Backend { return store }, faults: new(atomic.Int64)}
	a.fault = func() {
		killed, err := admin.ClientKillByFilter(tb.Context(), "TYPE", "normal", "SKIPME", "yes").Result()
		if err != nil {
			tb.Errorf("killing connections: %v", err)
		}
		a.faults.Add(killed)
	}
	return a
}

// underLossesInRedis is a Redis store whose answers get lost, and the connections with them: what was asked for
// has been done.
func underLossesInRedis(tb testing.TB) arena {
	addr := redistest.Addr(tb)
	proxy := redistest.NewProxy(tb, addr)
	store, prefix := redisStore(tb, proxy.Addr())
	admin := redisClient(tb, addr)
	a := arena{fresh: func() backend.Backend { return store }, faults: new(atomic.Int64)}
	var one sync.Mutex
	a.fault = func() {
		if rand.IntN(10) > 0 { // or hardly a call is answered, and any order explains the others
			return
		}
		one.Lock()
		defer one.Unlock()
		before := proxy.Lost()
		proxy.LoseAnswers(prefix)
		if err := admin.Ping(tb.Context()).Err(); err != nil { // while that takes, others lose theirs
			tb.Errorf("waiting for answers to get lost: %v", err)
		}
		proxy.LoseAnswers("")
		a.faults.Add(int64(proxy.Lost() - before))
	}
	return a
}

// redisStore opens a store with a connection for every client, and a prefix of its own.
func redisStore(tb testing.TB, addr string) (store *redis.Backend, prefix string) {
	tb.Helper()
	prefix = fmt.Sprint("histories ", rand.Uint64())
	store, err := redis.New(redisClient(tb, addr), redis.WithPrefix(prefix))
	if err != nil {
		tb.Fatal(err)
	}
	return store, prefix
}

func redisClient(tb testing.TB, addr string) *goredis.Client {
	tb.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: addr, PoolSize: 32})
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Error(err)
		}
	})
	return client
}
