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

// redisUnderLosses is a Redis store whose answers get lost, and the connections with them: what was asked for has
// been done.
func redisUnderLosses(tb testing.TB) arena {
	proxy := redistest.NewProxy(tb, redistest.Addr(tb))
	store, client := redisStore(tb, proxy.Addr())
	a := arena{fresh: func() backend.Backend { return store }, faults: new(atomic.Int64)}
	var one sync.Mutex
	a.fault = func() {
		if rand.IntN(10) > 0 { // the server is quick: with a fault always under way hardly a call would be answered
			return
		}
		one.Lock()
		defer one.Unlock()
		before := proxy.Lost()
		proxy.LoseAnswers("evalsha")
		// While that takes, others lose theirs.
		if err := client.EvalSha(tb.Context(), "no script", nil).Err(); err == nil || goredis.HasErrorPrefix(err, "NOSCRIPT") {
			tb.Errorf("waiting for answers to get lost: %v", err)
		}
		proxy.LoseAnswers("")
		a.faults.Add(int64(proxy.Lost() - before))
	}
	return a
}

// redisStore opens a store with a connection for every client.
func redisStore(tb testing.TB, addr string) (*redis.Backend, *goredis.Client) {
	tb.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: addr, PoolSize: 40, MaxRetries: -1})
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Error(err)
		}
	})
	store, err := redis.New(client, redis.WithPrefix(fmt.Sprint("histories ", rand.Uint64())))
	if err != nil {
		tb.Fatal(err)
	}
	return store, client
}
