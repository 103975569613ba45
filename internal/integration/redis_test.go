package integration_test

import (
	"crypto/rand"
	"testing"

	"github.com/onsi/gomega"
	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/redis"
	"github.com/aetomala/worklease/internal/redistest"
)

// redisStore makes stores with a prefix of their own.
func redisStore(t *testing.T, opts ...redis.Option) func() backend.Backend {
	client := goredis.NewClient(&goredis.Options{Addr: redistest.Addr(t)})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return func() backend.Backend {
		store, err := redis.New(client, append(opts, redis.WithPrefix(rand.Text()))...)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		return store
	}
}
