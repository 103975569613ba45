package redis_test

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/redis"
)

func TestNewRefuses(t *testing.T) {
	client := dial(t, &goredis.Options{Addr: "127.0.0.1:1"})
	ring := goredis.NewRing(&goredis.RingOptions{})
	t.Cleanup(func() { must(t, ring.Close()) })
	for name, row := range map[string]struct {
		client goredis.UniversalClient
		opts   []redis.Option
	}{
		"no client":                  {nil, nil},
		"a nil client":               {(*goredis.Client)(nil), nil},
		"a nil cluster":              {(*goredis.ClusterClient)(nil), nil},
		"a ring":                     {ring, nil},
		"an empty prefix":            {client, []redis.Option{redis.WithPrefix("")}},
		"a prefix with a tag":        {client, []redis.Option{redis.WithPrefix("a{b}")}},
		"a prefix that closes a tag": {client, []redis.Option{redis.WithPrefix("}")}},
		"a prefix with NUL":          {client, []redis.Option{redis.WithPrefix("a\x00")}},
		"a prefix that is not UTF-8": {client, []redis.Option{redis.WithPrefix("\xff")}},
		"a prefix that is very long": {client, []redis.Option{redis.WithPrefix(strings.Repeat("a", 257))}},
	} {
		if store, err := redis.New(row.client, row.opts...); err == nil || store != nil {
			t.Errorf("%s: New returns %v, %v", name, store, err)
		}
	}
	if _, err := redis.New(client, nil, redis.WithPrefix("team:é a")); err != nil {
		t.Error(err)
	}
}

// Whatever the work ID, a cluster keeps it where the other keys of the store are.
func TestAllKeysAreInOneSlot(t *testing.T) {
	client := cluster(t)
	store, prefix := open(t, client)
	for _, workID := range []string{"plain", "{tag}", "}{", "{}", "{", "*", "a b", "ẃ", "l:x", "\x00", strings.Repeat("k", 1024)} {
		acquire(t, store, workID, "h", time.Hour)
	}
	want, err := client.ClusterKeySlot(t.Context(), "{"+prefix+"}").Result()
	must(t, err)
	keys, err := client.Keys(t.Context(), "*"+prefix+"*").Result()
	must(t, err)
	if len(keys) != 11+2 { // the tokens, and what has no exit declared
		t.Errorf("the keys are %q", keys)
	}
	for _, key := range keys {
		if slot, err := client.ClusterKeySlot(t.Context(), key).Result(); err != nil || slot != want {
			t.Errorf("%q is in slot %d, %v, want %d", key, slot, err, want)
		}
	}
}

// Two stores with different prefixes, of which one begins like the other, share nothing.
func TestPrefixesAreApart(t *testing.T) {
	client := server(t)
	one, prefix := open(t, client)
	two, err := redis.New(client, redis.WithPrefix(prefix+":l"))
	must(t, err)
	mine := acquire(t, one, "w", "h", time.Hour)
	mustMatch(t, two.Renew(t.Context(), mine, time.Hour), backend.ErrFenced)
	acquire(t, two, "w", "h", time.Hour)
}

// The numbers of Lua end at 2 to the 53rd, and its tostring long before.
func TestTokensAreExact(t *testing.T) {
	client := server(t)
	for _, last := range []uint64{1 << 53, 1<<53 + 1, 1_796_057_924_522_414_777, math.MaxInt64 - 2} {
		store, prefix := open(t, client)
		must(t, client.Set(t.Context(), "{"+prefix+"}:tokens", strconv.FormatUint(last, 10), 0).Err())
		for i := range uint64(2) {
			mine := acquire(t, store, "w", "h", time.Hour)
			if mine.FencingToken != last+1+i {
				t.Errorf("after %d comes %d", last+i, mine.FencingToken)
			}
			for _, wrong := range []uint64{mine.FencingToken - 1, mine.FencingToken + 1} {
				other := mine
				other.FencingToken = wrong
				mustMatch(t, store.Renew(t.Context(), other, time.Hour), backend.ErrFenced)
			}
			must(t, store.Release(t.Context(), mine, backend.ExitFinished))
		}
	}
}

func TestTokensEndRatherThanRepeat(t *testing.T) {
	client := server(t)
	store, prefix := open(t, client)
	must(t, client.Set(t.Context(), "{"+prefix+"}:tokens", uint64(math.MaxInt64), 0).Err())
	_, err := store.Acquire(t.Context(), "w", "h", time.Hour)
	mustFail(t, err)
	if n, err := client.Exists(t.Context(), "{"+prefix+"}:l:w").Result(); err != nil || n != 0 {
		t.Errorf("%d rows, %v", n, err)
	}
}

// A counter that was lost, or set back, does not give out a token that a row has had, nor one that any has.
func TestTokensRiseWithoutTheirCounter(t *testing.T) {
	client := server(t)
	store, prefix := open(t, client)
	tokens := "{" + prefix + "}:tokens"
	first := acquire(t, store, "w", "h", time.Hour)
	must(t, store.Release(t.Context(), first, backend.ExitFinished))
	must(t, client.Del(t.Context(), tokens).Err())
	if second := acquire(t, store, "another", "h", time.Hour); second.FencingToken <= first.FencingToken {
		t.Errorf("after %d comes %d", first.FencingToken, second.FencingToken)
	}
	// The row is ahead of the counter, and of the clock.
	must(t, client.HSet(t.Context(), "{"+prefix+"}:l:w", "token", "9007199254740993").Err())
	if third := acquire(t, store, "w", "h", time.Hour); third.FencingToken != 9007199254740994 {
		t.Errorf("the token is %d", third.FencingToken)
	}
}

// What a lease leaves behind outlives it for as long as nobody sweeps.
func TestNothingExpiresByItself(t *testing.T) {
	client := server(t)
	store, prefix := open(t, client)
	mine := acquire(t, store, "w", "h", time.Hour)
	must(t, store.Checkpoint(t.Context(), mine, []byte("state"), time.Hour))
	must(t, store.Release(t.Context(), mine, backend.ExitRetired))
	keys, err := client.Keys(t.Context(), "{"+prefix+"}*").Result()
	must(t, err)
	for _, key := range keys {
		if ttl, err := client.TTL(t.Context(), key).Result(); err != nil || ttl != -1 {
			t.Errorf("%s ends in %v, %v", key, ttl, err)
		}
	}
}

// A held lease is read, and nothing is written that a replica or the log would have to take.
func TestAcquireOfAHeldLeaseWritesNothing(t *testing.T) {
	client := server(t)
	store, prefix := open(t, client)
	acquire(t, store, "w", "h", time.Hour)
	dump := func() string {
		row, err := client.HGetAll(t.Context(), "{"+prefix+"}:l:w").Result()
		must(t, err)
		last, err := client.Get(t.Context(), "{"+prefix+"}:tokens").Result()
		must(t, err)
		return strings.Join([]string{last, row["token"], row["exp"], row["upd"]}, " ")
	}
	before := dump()
	_, err := store.Acquire(t.Context(), "w", "another", time.Hour)
	mustMatch(t, err, backend.ErrLeaseHeld)
	if after := dump(); after != before {
		t.Errorf("%s became %s", before, after)
	}
}

// A sweep looks past what it may not delete, however much of that there is.
func TestSweepOfMoreThanOneBatch(t *testing.T) {
	client := server(t)
	store, prefix := open(t, client)
	for i := range 1300 {
		ttl := time.Hour
		if i%2 == 1 {
			ttl = -time.Minute
		}
		acquire(t, store, strconv.Itoa(i), "h", ttl)
	}
	must(t, client.ZAdd(t.Context(), "{"+prefix+"}:open", goredis.Z{Member: "nobody's"}).Err())
	deleted, err := store.Sweep(t.Context(), backend.SweepOptions{Retention: -time.Minute, IncludeExpired: true})
	if err != nil || deleted != 650 {
		t.Errorf("deleted %d, %v", deleted, err)
	}
	if left, err := client.ZCard(t.Context(), "{"+prefix+"}:open").Result(); err != nil || left != 650 {
		t.Errorf("%d entries are left, %v", left, err)
	}
}

func TestHeldErrorTellsWhoIsAtWorkFromWhoHasLeft(t *testing.T) {
	b, _ := open(t, server(t))
	record := acquire(t, b, "w", "a", time.Hour)
	for _, want := range []backend.ExitMode{backend.ExitNone, backend.ExitAbandoned} {
		if want != backend.ExitNone {
			must(t, b.ReleaseAfter(t.Context(), record, want, time.Hour))
		}
		_, err := b.Acquire(t.Context(), "w", "b", time.Hour)
		held, ok := errors.AsType[*backend.HeldError](err)
		if !ok || held.HolderID != "a" || held.Exit != want {
			t.Errorf("error = %v, exit %v, want %v", err, held, want)
		}
	}
}
