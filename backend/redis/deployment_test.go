package redis_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/redis"
	"github.com/aetomala/worklease/internal/redistest"
)

// everyCall makes all calls of the store once, and expects success.
func everyCall(t *testing.T, store *redis.Backend) {
	t.Helper()
	ctx := t.Context()
	must(t, store.Check(ctx))
	mine := acquire(t, store, "w", "h", time.Hour)
	must(t, store.Checkpoint(ctx, mine, []byte("s"), time.Hour))
	must(t, store.Checkpoint(ctx, mine, nil, time.Hour))
	must(t, store.Renew(ctx, mine, time.Hour))
	verdicts, err := store.RenewBatch(ctx, []backend.LeaseRecord{mine}, time.Hour)
	if err != nil || verdicts[0] != nil {
		t.Fatal(verdicts, err)
	}
	_, err = store.ReadCheckpoint(ctx, mine)
	must(t, err)
	must(t, store.Release(ctx, mine, backend.ExitFinished))
	mine, _, err = store.AcquireRead(ctx, "w", "h", time.Hour)
	must(t, err)
	must(t, store.CheckpointRelease(ctx, mine, []byte("s"), backend.ExitRetired))
	mine = acquire(t, store, "w", "h", time.Hour)
	must(t, store.ReleaseAfter(ctx, mine, backend.ExitRetired, time.Hour))
	must(t, store.Forget(ctx, mine))
	_, err = store.Free(ctx, []string{"w"})
	must(t, err)
	must(t, store.Release(ctx, acquire(t, store, "w", "h", time.Hour), backend.ExitRetired))
	if n, err := store.Sweep(ctx, backend.SweepOptions{Retention: -time.Hour, IncludeExpired: true}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
}

// rights are those that docs/redis.md lists.
const rights = "on >secret ~{team}:* +evalsha +eval +time +get +set +incr +hget +hmget +hset +hdel +del +zadd +zrem +zrangebyscore +info"

// The rights are enough.
func TestRights(t *testing.T) {
	s := redistest.New(t)
	admin := dial(t, &goredis.Options{Addr: s.Addr()})
	must(t, admin.Do(t.Context(), toAny(append([]string{"ACL", "SETUSER", "app"}, strings.Fields(rights)...))...).Err())
	client := dial(t, &goredis.Options{Addr: s.Addr(), Username: "app", Password: "secret"})
	store, err := redis.New(client, redis.WithPrefix("team"))
	must(t, err)
	everyCall(t, store)

	other, err := redis.New(client, redis.WithPrefix("others"))
	must(t, err)
	_, err = other.Acquire(t.Context(), "w", "h", time.Hour)
	mustFail(t, err)
}

// Behind Sentinel a store goes on with the replica that is promoted. The tokens rise, since the time does.
func TestSentinelFailsOver(t *testing.T) {
	ctx := t.Context()
	master := redistest.New(t)
	replica := redistest.New(t, "--replicaof", "127.0.0.1 "+master.Port(), "--repl-diskless-sync-delay", "0")
	atReplica := dial(t, &goredis.Options{Addr: replica.Addr()})
	sentinel := redistest.NewSentinel(t, "sentinel monitor leases 127.0.0.1 "+master.Port()+" 1",
		"sentinel down-after-milliseconds leases 500", "sentinel failover-timeout leases 2000")
	client := goredis.NewFailoverClient(&goredis.FailoverOptions{
		MasterName: "leases", SentinelAddrs: []string{sentinel.Addr()}, DialerRetries: 1,
	})
	t.Cleanup(func() { must(t, client.Close()) })
	store, err := redis.New(client, redis.WithPrefix(rand.Text()))
	must(t, err)
	everyCall(t, store)
	mine := acquire(t, store, "w", "h", time.Hour)
	must(t, store.Checkpoint(ctx, mine, []byte("s"), time.Hour))
	// Here, unlike in an accident, the replica has everything.
	if n, err := client.Wait(ctx, 1, 20*time.Second).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas, %v", n, err)
	}
	atSentinel := goredis.NewSentinelClient(&goredis.Options{Addr: sentinel.Addr()})
	t.Cleanup(func() { must(t, atSentinel.Close()) })
	await(t, "Sentinel to know the replica", func() bool {
		replicas, err := atSentinel.Replicas(ctx, "leases").Result()
		return err == nil && len(replicas) == 1
	})
	master.Kill()
	await(t, "the replica to be promoted", func() bool {
		return strings.Contains(atReplica.Info(ctx, "replication").Val(), "role:master")
	})
	await(t, "the store to be back", func() bool { return store.Renew(ctx, mine, time.Hour) == nil })
	if found, err := store.ReadCheckpoint(ctx, mine); err != nil || string(found.State) != "s" {
		t.Errorf("found %q, %v", found.State, err)
	}
	if next := acquire(t, store, "next", "h", time.Hour); next.FencingToken <= mine.FencingToken {
		t.Errorf("after %d comes %d", mine.FencingToken, next.FencingToken)
	}
}

func toAny(words []string) []any {
	all := make([]any, len(words))
	for i, word := range words {
		all[i] = word
	}
	return all
}
