package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/pgtest"
)

const (
	manyTTL         = 30 * time.Second
	manyConnections = 4
)

func tableMany(t *testing.T, s *pgtest.Server) {
	leases := pick(2000, 20)
	tab := table{
		title: "What it costs to hold many leases",
		about: fmt.Sprintf("%d leases in one process with a TTL of %v, renewed as they are by default, on %d connections; "+
			"processor time as a share of one core; fsync off.", leases, manyTTL, manyConnections),
		head: []string{"driver", "renewals a second", "client", "server", "WAL a second", "lost"},
	}
	for _, driver := range drivers {
		tab.add(append([]string{label[driver]}, holdMany(t, s, driver, leases)...)...)
	}
	tab.print(t)
}

// holdMany holds so many leases for a while and returns the cells of a row.
func holdMany(t *testing.T, s *pgtest.Server, driver string, leases int) []string {
	t.Helper()
	f := newFixture(t, s, driver, manyConnections)
	admin, c := pgtest.Open(t, "pgx", f.dsn), newClock(t, s)
	var made atomic.Int64
	lease, err := worklease.New(f.store, worklease.Config{TTL: manyTTL, HolderID: "a", Observer: renewed{made: &made}})
	if err != nil {
		t.Fatal(err)
	}
	var held []context.Context
	for i := range leases {
		token, err := lease.Acquire(t.Context(), strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		renewCtx, stop := lease.StartRenewal(t.Context(), token)
		defer stop()
		held = append(held, renewCtx)
	}
	time.Sleep(pick(manyTTL/2, 0)) // until each has been renewed, and they are spread
	logged := func() int64 {
		return scan[int64](t, admin, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
	}
	position, client, server := logged(), c.self(), c.server()
	made.Store(0)
	began := time.Now()
	time.Sleep(length(manyTTL))
	seconds := time.Since(began).Seconds()
	share := func(d time.Duration) string { return fmt.Sprintf("%.1f %%", 100*d.Seconds()/seconds) }
	lost := 0
	for _, renewCtx := range held {
		if renewCtx.Err() != nil {
			lost++
		}
	}
	return []string{
		fmt.Sprintf("%.0f", float64(made.Load())/seconds), share(c.self() - client), share(c.server() - server),
		fmt.Sprintf("%.0f KiB", float64(logged()-position)/1024/seconds), fmt.Sprint(lost),
	}
}

// renewed counts renewals.
type renewed struct {
	worklease.NoopObserver
	made *atomic.Int64
}

func (r renewed) OnRenew(_ context.Context, e worklease.RenewEvent) {
	if e.Err == nil {
		r.made.Add(1)
	}
}
