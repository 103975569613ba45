package redis_test

import (
	"crypto/rand"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/conformance"
	"github.com/aetomala/worklease/backend/redis"
	"github.com/aetomala/worklease/internal/redistest"
)

// Every kind of client keeps the contract, whichever protocol it speaks and whatever it does with contexts.
func TestConformance(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	addr := redistest.Addr(t)
	mini, _ := miniature(t)
	for name, row := range map[string]struct {
		client goredis.UniversalClient
		opts   []redis.Option
	}{
		"a server":                      {server(t), []redis.Option{redis.WithWakeUps(nil)}},
		"a server, RESP2 and deadlines": {dial(t, &goredis.Options{Addr: addr, Protocol: 2, ContextTimeoutEnabled: true}), nil},
		"a cluster":                     {cluster(t), []redis.Option{redis.WithWakeUps(nil)}},
		"miniredis":                     {mini, []redis.Option{redis.WithWakeUps(nil)}},
	} {
		ginkgo.Describe(name, conformance.RunSuite(func() backend.Backend {
			store, err := redis.New(row.client, append(row.opts, redis.WithPrefix(rand.Text()))...)
			if err != nil {
				ginkgo.Fail(err.Error())
			}
			return store
		}))
	}
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.NoColor = true // a failure is to be found among thousands of specs
	ginkgo.RunSpecs(t, "backend/redis", suite, reporter)
}
