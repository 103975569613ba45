package bench

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/redis"
)

// redisClients are as many as redis-benchmark has by default.
const redisClients = 50

// evalsha is a call of a script.
type evalsha struct {
	sha        string
	keys, args []string
}

// tableRedisFloor compares the store with those who send its scripts and look at no answer: a C program, and
// the client that the store uses. The scripts do the same there, but for what they refuse.
func tableRedisFloor(t *testing.T) {
	program := findRedisBenchmark(t)
	tab := table{
		title: "The store in Redis against the floor",
		about: "The store's own scripts, changed so that they refuse nothing, sent by redis-benchmark = 1 and by go-redis = 1, over " +
			"50 connections each. redis-benchmark sends them one kind after the other.",
		head: []string{"operation", "against redis-benchmark", "against go-redis", "go-redis against redis-benchmark"},
	}
	server := newRedis(t)
	client := server.client(t, redisClients)
	c := (&clock{}).with(server)
	store := server.store(t, redisClients)
	for _, floor := range []struct {
		name  string
		do    op
		calls []evalsha
	}{
		{"Renew", redisRenew(t, store), []evalsha{looseScript(t, client, "renew",
			[]string{"{floor}:l:w"}, []string{"3600000000", "holder", "1"})}},
		{"Acquire + Release", redisOps[0].do(store, "free "), []evalsha{
			looseScript(t, client, "acquire",
				[]string{"{floor}:l:w", "{floor}:open", "{floor}:retired", "{floor}:tokens"}, []string{"w", "holder", "-1", ""}),
			looseScript(t, client, "release",
				[]string{"{floor}:l:w", "{floor}:open", "{floor}:retired"}, []string{"w", "holder", "1", "finished", "0", "", ""}),
		}},
	} {
		if err := client.HSet(t.Context(), "{floor}:l:w", "holder", "holder", "token", "1", "exp", "0", "upd", "0", "pexit", "none", "pholder", "").Err(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			mustAgree(t, client, floor.calls)
		}
		variants := []variant{throughput(t, c, redisClients, floor.do), throughput(t, c, redisClients, goRedisFloor(client, floor.calls))}
		if program == "" {
			compare(length(roundLength), variants...)
			continue
		}
		medians := compare(length(roundLength), append(variants, redisBenchmark(t, c, program, server, floor.calls))...)
		tab.add(floor.name, against(medians[0], medians[2]), against(medians[0], medians[1]), against(medians[1], medians[2]))
	}
	tab.print(t)
}

func redisRenew(t *testing.T, store *redis.Backend) op {
	t.Helper()
	records := make([]backend.LeaseRecord, redisClients*leasesEach())
	for i := range records {
		var err error
		if records[i], err = store.Acquire(t.Context(), strconv.Itoa(i), "holder", ttl); err != nil {
			t.Fatal(err)
		}
	}
	return func(ctx context.Context, client, i int) error { return store.Renew(ctx, records[nth(client, i)], ttl) }
}

// goRedisFloor sends the calls one after another, and looks at their errors only.
func goRedisFloor(client *goredis.Client, calls []evalsha) op {
	args := make([][]any, len(calls))
	for i, call := range calls {
		for _, arg := range call.args {
			args[i] = append(args[i], arg)
		}
	}
	return func(ctx context.Context, _, _ int) error {
		for i, call := range calls {
			if err := client.EvalSha(ctx, call.sha, call.keys, args[i]...).Err(); err != nil {
				return err
			}
		}
		return nil
	}
}

// mustAgree fails the test if a script refuses a call: it would do less than the store's.
func mustAgree(t *testing.T, client *goredis.Client, calls []evalsha) {
	t.Helper()
	for _, call := range calls {
		var args []any
		for _, arg := range call.args {
			args = append(args, arg)
		}
		if words, err := client.EvalSha(t.Context(), call.sha, call.keys, args...).StringSlice(); err != nil || words[0] != "ok" {
			t.Fatalf("the script answers %q, %v", words, err)
		}
	}
}

// loose are the conditions that a script would not meet a second time, and ones that it does.
var loose = strings.NewReplacer(
	"return row[1] == holder and row[2] == token", "return row[1] == holder or row[2] == token",
	"found[3] or tonumber(found[4]) <= now", "found[3] and tonumber(found[4]) <= now",
	"found[3] or not final and tonumber(found[4]) <= now", "found[3] and not final and tonumber(found[4]) > now",
	"if found[4] then\n  redis.call('HDEL'", "if holder then\n  redis.call('HDEL'",
)

// looseScript loads a script of the store's that refuses nothing.
func looseScript(t *testing.T, client *goredis.Client, name string, keys, args []string) evalsha {
	t.Helper()
	source := loose.Replace(storeScript(t, "prelude") + storeScript(t, name))
	sum := sha1.Sum([]byte(source))
	if err := client.ScriptLoad(t.Context(), source).Err(); err != nil {
		t.Fatal(err)
	}
	return evalsha{sha: hex.EncodeToString(sum[:]), keys: keys, args: args}
}

func storeScript(t *testing.T, name string) string {
	t.Helper()
	source, err := os.ReadFile("../backend/redis/scripts/" + name + ".lua")
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}
