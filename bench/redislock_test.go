package bench

import (
	"context"
	"strconv"
	"testing"

	"github.com/aetomala/worklease/backend"
)

// redisOps are the ways in which a worker and a lock take and give back a lease.
var redisOps = []struct {
	name string
	do   func(store redisStore, workID string) op
}{
	{"Acquire + Release", func(store redisStore, prefix string) op {
		return func(ctx context.Context, client, i int) error {
			record, err := store.Acquire(ctx, prefix+strconv.Itoa(nth(client, i)), "holder", ttl)
			if err != nil {
				return err
			}
			return store.Release(ctx, record, backend.ExitFinished)
		}
	}},
	{"AcquireRead + CheckpointRelease, 100 B", func(store redisStore, prefix string) op {
		return func(ctx context.Context, client, i int) error {
			record, _, err := store.AcquireRead(ctx, prefix+strconv.Itoa(nth(client, i)), "holder", ttl)
			if err != nil {
				return err
			}
			return store.CheckpointRelease(ctx, record, state100, backend.ExitFinished)
		}
	}},
}

type redisStore interface {
	backend.Backend
	backend.AcquireReader
	backend.CheckpointReleaser
}

func tableRedislock(t *testing.T) {
	tab := table{
		title: "Acquire and release against redislock",
		about: "bsm/redislock 0.9.4, Obtain and Release = 1; go-redis for both, a connection for each client. Its lock is a key that lapses: " +
			"no token that rises, no exit, no state, and nothing is left of it.",
		head: []string{"operation", "1 client", "8 clients", "50 clients"},
	}
	server := newRedis(t)
	c := (&clock{}).with(server)
	cells := make([][]string, len(redisOps))
	for _, clients := range pick([]int{1, 8, 50}, []int{1, 2, 3}) {
		store := server.store(t, clients)
		var variants []variant
		for _, ours := range redisOps {
			variants = append(variants, throughput(t, c, clients, ours.do(store, ours.name)))
		}
		variants = append(variants, throughput(t, c, clients, server.obtainRelease(t, clients)))
		medians := compare(length(roundLength), variants...)
		for i := range redisOps {
			cells[i] = append(cells[i], against(medians[i], medians[len(redisOps)]))
		}
	}
	for i, ours := range redisOps {
		tab.add(append([]string{ours.name}, cells[i]...)...)
	}
	tab.print(t)
}
