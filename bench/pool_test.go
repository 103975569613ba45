package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/pool"
)

// poolConnections is how many each process has.
const poolConnections = 4

func tablePool(t *testing.T, s *pgtest.Server) {
	ids, processes := pick(1000, 20), pick(10, 2)
	tab := table{
		title: fmt.Sprintf("Pool, %d IDs held elsewhere, %d processes", ids, processes),
		about: fmt.Sprintf("Statements a second with an IdleInterval of 1 s, against those of a store that hides that it can say what is free. "+
			"The processes are pools of one program with %d connections each; processor time of all as a share of one core; fsync off.", poolConnections),
		head: []string{"driver", "idle slots", "statements a second", "of a process", "client", "server"},
	}
	for _, driver := range drivers {
		f := newFixture(t, s, driver, 1)
		f.leases(t, ids, nil)
		execute(t, f.db, "ANALYZE worklease_leases")
		for _, way := range []struct {
			name string
			of   func(*counted) backend.Backend
		}{
			{"try one by one", func(c *counted) backend.Backend { return c }},
			{"are looked for", func(c *counted) backend.Backend { return looking{c} }},
		} {
			tab.add(append([]string{label[driver], way.name}, wait(t, s, f, driver, ids, processes, way.of)...)...)
		}
	}
	tab.print(t)
}

// wait has so many pools wait for what f holds, and returns the cells of a row.
func wait(t *testing.T, s *pgtest.Server, f *fixture, driver string, ids, processes int, of func(*counted) backend.Backend) []string {
	t.Helper()
	var made atomic.Int64
	workIDs := make([]string, ids)
	for i := range workIDs {
		workIDs[i] = strconv.Itoa(i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	for i := range processes {
		store := of(&counted{f.onSameTable(t, driver, poolConnections).store, &made})
		lease, err := worklease.New(store, worklease.Config{TTL: ttl, HolderID: strconv.Itoa(i)})
		if err != nil {
			t.Fatal(err)
		}
		p, err := pool.New(lease, pool.Config{WorkIDs: workIDs}, func(context.Context, string, worklease.Token, worklease.Checkpoint) ([]byte, error) {
			t.Error("the work began")
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(pick(3*time.Second, 0)) // until each has asked for everything
	c := newClock(t, s)
	client, server := c.self(), c.server()
	made.Store(0)
	began := time.Now()
	time.Sleep(length(10 * time.Second))
	seconds := time.Since(began).Seconds()
	rate := float64(made.Load()) / seconds
	share := func(d time.Duration) string { return fmt.Sprintf("%.1f %%", 100*d.Seconds()/seconds) }
	cells := []string{
		fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.1f", rate/float64(processes)),
		share(c.self() - client), share(c.server() - server),
	}
	cancel()
	running.Wait()
	return cells
}

// counted counts statements, of those that a pool makes which gets nothing.
type counted struct {
	backend.Backend
	made *atomic.Int64
}

func (c *counted) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	c.made.Add(1)
	return c.Backend.Acquire(ctx, workID, holderID, ttl)
}

// looking says what is free, too.
type looking struct{ *counted }

func (l looking) Free(ctx context.Context, workIDs []string) ([]string, error) {
	l.made.Add(1)
	return l.Backend.(backend.Looker).Free(ctx, workIDs)
}
