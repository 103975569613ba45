package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/backend/postgres/pgxlisten"
	"github.com/aetomala/worklease/internal/pgtest"
)

// tableHandoff compares what a waiter gains from being told, and what that costs those who release.
func tableHandoff(t *testing.T, quick, durable *pgtest.Server) {
	waiters := pick(100, 3)
	tab := table{
		title: "How soon a waiter has what is released",
		about: fmt.Sprintf("%d wait on one Lease, each for another work ID, of which one is released every 10 ms by another store. "+
			"From the start of the Release to the end of the Acquire; pgx, fsync off.", waiters),
		head: []string{"waiters learn of it", "p50", "p99", "longest"},
	}
	for _, push := range []bool{false, true} {
		took := handoffs(t, quick, waiters, push)
		tab.add(map[bool]string{false: "by the look that they share", true: "by a listener"}[push],
			milliseconds(took, 0.5), milliseconds(took, 0.99), milliseconds(took, 1))
	}
	tab.print(t)
	tableTelling(t, quick, durable)
}

func handoffs(t *testing.T, s *pgtest.Server, waiters int, push bool) []time.Duration {
	t.Helper()
	f := newFixture(t, s, "pgx", 8)
	works := make(chan error, 100)
	var opts []postgres.Option
	if push {
		opts = append(opts, postgres.WithListener(pgxlisten.DSN(f.dsn), func(err error) { works <- err }))
	} else {
		works <- nil
	}
	store := f.onSameTable(t, "pgx", 8, opts...).store
	holder := f.onSameTable(t, "pgx", 2, opts...).store
	refused := make(chan struct{}, 10*waiters)
	lease, err := worklease.New(store, worklease.Config{TTL: time.Hour, HolderID: "waiter", Observer: attempted{made: refused}})
	if err != nil {
		t.Fatal(err)
	}
	var (
		held     = make([]backend.LeaseRecord, waiters)
		released = make([]time.Time, waiters)
		took     []time.Duration
		all      sync.WaitGroup
	)
	for round := range pick(10, 1) {
		id := func(i int) string { return strconv.Itoa(round*waiters + i) }
		for i := range waiters {
			if held[i], err = holder.Acquire(t.Context(), id(i), "holder", ttl); err != nil {
				t.Fatal(err)
			}
		}
		acquired := make([]time.Time, waiters)
		for i := range waiters {
			all.Go(func() {
				if _, err := lease.Acquire(t.Context(), id(i), worklease.WithWaitForLease(), worklease.WithPollInterval(time.Hour)); err != nil {
					t.Error(err)
				}
				acquired[i] = time.Now()
			})
		}
		for range waiters {
			<-refused
		}
		if round == 0 {
			if err := <-works; err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(pick(300*time.Millisecond, 0)) // those who try once since listening has begun have done so
		for i := range waiters {
			released[i] = time.Now()
			if err := holder.Release(t.Context(), held[i], backend.ExitFinished); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pick(10*time.Millisecond, 0))
		}
		all.Wait()
		for len(refused) > 0 {
			<-refused
		}
		for i := range waiters {
			took = append(took, acquired[i].Sub(released[i]))
		}
	}
	return took
}

// attempted tells of each attempt.
type attempted struct {
	worklease.NoopObserver
	made chan struct{}
}

func (a attempted) OnAcquire(context.Context, worklease.AcquireEvent) { a.made <- struct{}{} }

// tableTelling compares acquiring and releasing with a store that tells and with one that does not.
func tableTelling(t *testing.T, quick, durable *pgtest.Server) {
	tab := table{
		title: "What it costs to tell",
		about: "Acquire and Release with a listener against the same without, pgx. Those that notify are committed one after another.",
		head:  []string{"clients", "fsync on", "fsync off"},
	}
	for _, clients := range []int{1, 4, 16} {
		cells := []string{strconv.Itoa(clients)}
		for _, s := range []*pgtest.Server{durable, quick} {
			silent := newFixture(t, s, "pgx", clients)
			telling := silent.onSameTable(t, "pgx", clients, postgres.WithListener(pgxlisten.DSN(silent.dsn), nil))
			c := newClock(t, s)
			medians := compare(length(roundLength), throughput(t, c, clients, telling.cycle), throughput(t, c, clients, silent.cycle))
			cells = append(cells, against(medians[0], medians[1]))
		}
		tab.add(cells...)
	}
	tab.print(t)
}

// cycle acquires a lease and releases it.
func (f *fixture) cycle(ctx context.Context, client, i int) error {
	record, err := f.store.Acquire(ctx, strconv.Itoa(nth(client, i)), "holder", ttl)
	if err != nil {
		return err
	}
	return f.store.Release(ctx, record, backend.ExitFinished)
}
