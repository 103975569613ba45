package soak

import (
	"context"
	"flag"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

var (
	duration    = flag.Duration("duration", 0, "how long leases are held; 0: until each has been renewed five times")
	leases      = flag.Int("leases", 100, "how many leases are held")
	ttl         = flag.Duration("ttl", time.Minute, "their TTL")
	connections = flag.Int("connections", 10, "connections in a pool")
	hold        = flag.Duration("hold", 100*time.Millisecond, "how long the work keeps a connection")
	driver      = flag.String("driver", "pgx", "pgx or pq")
)

// params are those of a run.
type params struct {
	duration      time.Duration
	leases        int
	ttl, interval time.Duration
	connections   int
	hold          time.Duration
}

// asked returns the parameters that the flags ask for.
func asked() params {
	p := params{duration: *duration, leases: *leases, ttl: *ttl, interval: *ttl / 2, connections: *connections, hold: *hold}
	if p.duration == 0 { // with most of the TTL to spare: no machine is slow enough to lose one
		p.interval = 200 * time.Millisecond
	}
	return p
}

// pools says whose connections the work takes.
type pools int

const (
	noWork pools = iota
	apart
	shared
)

// All leases are kept, whatever the work does to its own pool; and nothing is left of them.
func TestManyLeases(t *testing.T) {
	var results []result
	for _, c := range []struct {
		name  string
		pools pools
	}{{"leases alone", noWork}, {"work on a pool of its own", apart}} {
		t.Run(c.name, func(t *testing.T) {
			r := soak(t, c.pools, asked())
			r.name = c.name
			results = append(results, r)
			if r.lost > 0 {
				t.Errorf("%d leases were lost", r.lost)
			}
			if r.connections > *connections {
				t.Errorf("%d connections, of %d allowed", r.connections, *connections)
			}
			if float64(r.hot) < 0.9*float64(r.updates) {
				t.Errorf("%d of %d updates were HOT", r.hot, r.updates)
			}
		})
	}
	t.Run("work on the same pool", func(t *testing.T) {
		p := asked()
		if p.duration == 0 { // the work keeps all connections until nothing is left
			p.leases, p.ttl, p.interval, p.hold = p.leases/4, 5*time.Second, 2500*time.Millisecond, time.Hour
		}
		r := soak(t, shared, p)
		r.name = "work on the same pool"
		results = append(results, r)
		if p.duration == 0 && r.lost < r.leases {
			t.Errorf("%d of %d leases were lost", r.lost, r.leases)
		}
	})
	if *duration > 0 {
		if err := print(os.Stdout, results); err != nil {
			t.Fatal(err)
		}
	}
}

func soak(t *testing.T, whose pools, p params) result {
	server := pgtest.New(t)
	admin := pgtest.Open(t, "pgx", server.DSN())
	admin.SetMaxOpenConns(1)
	if _, err := admin.ExecContext(t.Context(), postgres.Schema); err != nil {
		t.Fatal(err)
	}
	r := result{leases: p.leases, ttl: p.ttl, before: runtime.NumGoroutine()}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	db := pgtest.Open(t, *driver, server.DSN("application_name=leases"))
	db.SetMaxOpenConns(p.connections)
	db.SetMaxIdleConns(p.connections)
	store, err := postgres.New(db)
	if err != nil {
		t.Fatal(err)
	}
	h := acquire(ctx, t, store, p)
	r.start = measure(t, admin)
	taken := db
	if whose == apart {
		taken = pgtest.Open(t, *driver, server.DSN("application_name=work"))
		taken.SetMaxOpenConns(p.connections)
		taken.SetMaxIdleConns(p.connections)
	}
	begun := time.Now()
	var w *work
	if whose != noWork {
		w = start(ctx, t, taken, p)
	}

	switch {
	case p.duration > 0:
		select {
		case <-time.After(p.duration):
		case <-ctx.Done():
		}
	case whose == shared:
		await(t, "all leases to be lost", func() bool { n, _ := h.lost(); return n == p.leases })
	default:
		await(t, "renewals", func() bool { return h.books.all(p.leases, 5) })
	}
	r.took = time.Since(begun)
	var other error
	if r.lost, other = h.lost(); other != nil {
		t.Errorf("a lease was lost with %v", other)
	}
	r.counts, r.end = h.books.sum(), measure(t, admin)
	stats := db.Stats()
	r.connections, r.waits, r.waited = stats.OpenConnections, stats.WaitCount, stats.WaitDuration
	if w != nil {
		w.end()
		r.taken = w.taken.Load()
	}
	h.release(ctx, t, p)
	cancel()
	for _, pool := range []interface{ Close() error }{db, taken} { // sessions that end say what they have done
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	}
	await(t, "goroutines to end", func() bool { r.after = runtime.NumGoroutine(); return r.after <= r.before })
	r.updates, r.hot = updates(t, admin, h.books.sum().made)
	return r
}
