package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/backend/redis"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/internal/pgtest"
)

const (
	// ttl is long enough for a loaded machine to keep a lease, and short enough to wait for its end.
	ttl      = 2 * time.Second
	shortTTL = time.Second
	// soon is how long a test waits for what should come before it: time is real here.
	soon = 20 * time.Second
	// never is a pause that nobody sits out: what comes although it is set came without a pause.
	never = time.Hour
)

var (
	errStore = errors.New("store: connection reset")
	errWork  = errors.New("work failed")
)

// TestStores runs every spec on every store. It mostly waits, so that the other tests can run beside it.
func TestStores(t *testing.T) {
	t.Parallel()
	gomega.RegisterFailHandler(ginkgo.Fail)
	stores := []struct {
		name string
		new  func() backend.Backend
	}{
		{"memory", func() backend.Backend { return memory.New() }},
		{"PostgreSQL by pgx", postgresStore(t, "pgx")},
		{"PostgreSQL by lib/pq", postgresStore(t, "pq")},
		{"Redis", redisStore(t)},
		{"Redis with wake-ups", redisStore(t, redis.WithWakeUps(nil))},
	}
	for _, store := range stores {
		ginkgo.Describe(store.name, func() {
			w := new(world)
			ginkgo.BeforeEach(func() { *w = world{store: store.new(), work: fmt.Sprintf("work-%d", works.Add(1))} })
			describeTenures(w)
			describePacing(w)
			describePool(w)
			describeVacuum(w)
			describeObservers(w)
		})
	}
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.NoColor = true
	ginkgo.RunSpecs(t, "internal/integration", suite, reporter)
}

func postgresStore(t *testing.T, driver string) func() backend.Backend {
	db := pgtest.Open(t, driver, pgtest.Schema(t))
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	migrate(t, db)
	return func() backend.Backend {
		store, err := postgres.New(db)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		return store
	}
}

func migrate(t testing.TB, db *sql.DB) {
	t.Helper()
	if err := postgres.Migrate(context.Background(), db); err != nil {
		t.Fatal(err)
	}
}

var works atomic.Int64

// world is what one spec has: a store and a work ID of its own.
type world struct {
	store backend.Backend
	work  string
}

// faulty returns the way of one holder to the store, for its faults.
func (w *world) faulty() *faulty.Store { return &faulty.Store{Backend: w.store} }

func leaseOf(b backend.Backend, holder string, observers ...worklease.LeaseObserver) worklease.Lease {
	ginkgo.GinkgoHelper()
	cfg := worklease.Config{TTL: ttl, HolderID: holder}
	for _, o := range observers {
		cfg.Observer = o
	}
	lease, err := worklease.New(b, cfg)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return lease
}

// inherit waits for the lease of work and returns what its next holder finds.
func (w *world) inherit(ctx context.Context) worklease.Checkpoint {
	ginkgo.GinkgoHelper()
	lease := leaseOf(w.store, "successor")
	token, err := lease.Acquire(ctx, w.work, worklease.WithWaitForLease(), worklease.WithPollInterval(20*time.Millisecond))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	found, err := lease.ReadCheckpoint(ctx, token)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return found
}

func recordOf(token worklease.Token) backend.LeaseRecord {
	return backend.LeaseRecord{WorkID: token.WorkID(), HolderID: token.HolderID(), FencingToken: token.FencingToken()}
}

// takeOver makes a rival hold what token holds, as after a pause longer than the TTL.
func (w *world) takeOver(ctx context.Context, token worklease.Token) {
	ginkgo.GinkgoHelper()
	ctx = context.WithoutCancel(ctx)
	gomega.Expect(w.store.Release(ctx, recordOf(token), backend.ExitAbandoned)).To(gomega.Succeed())
	_, err := w.store.Acquire(ctx, token.WorkID(), "rival", shortTTL)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

// limited is the context of a spec: one that hangs fails.
func limited(ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, soon)
	ginkgo.DeferCleanup(cancel)
	return ctx
}
