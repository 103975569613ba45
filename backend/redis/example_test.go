package redis_test

import (
	"context"
	"fmt"
	"log"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/redis"
	"github.com/aetomala/worklease/worker"
)

// A worker whose leases are in Redis. With NewFailoverClient the address is that of Sentinel, and with
// NewClusterClient those of a cluster; nothing else changes.
func Example() {
	ctx := context.Background()
	client := goredis.NewClient(&goredis.Options{Addr: "localhost:6379"})
	defer func() {
		if err := client.Close(); err != nil {
			log.Print(err)
		}
	}()
	store, err := redis.New(client, redis.WithPrefix("invoicing"))
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Check(ctx); err != nil {
		log.Fatal(err)
	}
	lease, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	runner, err := worker.NewRunner(worker.RunnerConfig{
		Lease: lease,
		WorkFn: func(_ context.Context, _ worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
			fmt.Printf("carries on from %q\n", prior.State)
			return []byte("page 7"), nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := runner.Run(ctx, "invoices"); err != nil {
		log.Fatal(err)
	}
}
