package bench

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"cirello.io/pglock"

	"github.com/aetomala/worklease/internal/pgtest"
)

func tableHeartbeat(t *testing.T, quick, durable *pgtest.Server) {
	clients, size := pick(8, 2), pick(100, 2)
	tab := table{
		title: "Renewals against pglock's heartbeats",
		about: fmt.Sprintf("pglock 1.16.1, SendHeartbeat on the same driver = 1; %d clients; leases a second. A heartbeat is two statements: "+
			"a number is drawn, and the row updated with it.", clients),
		head: []string{"driver", "renewal", "fsync on", "fsync off"},
	}
	for _, driver := range drivers {
		single, batched := []string{label[driver], "Renew"}, []string{label[driver], fmt.Sprintf("RenewBatch of %d", size)}
		for _, s := range []*pgtest.Server{durable, quick} {
			c := newClock(t, s)
			f := newFixture(t, s, driver, clients)
			records := f.leases(t, clients*max(size, leasesEach()), nil)
			batch := throughput(t, c, clients, func(ctx context.Context, client, _ int) error {
				return renewBatch(ctx, f, records[client*size:(client+1)*size])
			})
			medians := compare(length(roundLength),
				throughput(t, c, clients, renew(f, records)),
				func(d time.Duration) sample {
					sent := batch(d)
					return sample{rate: sent.rate * float64(size), cpu: sent.cpu / float64(size)}
				},
				throughput(t, c, clients, pglockHeartbeat(t, s, driver, clients)),
			)
			single = append(single, against(medians[0], medians[2]))
			batched = append(batched, against(medians[1], medians[2]))
		}
		tab.add(single...)
		tab.add(batched...)
	}
	tab.print(t)
}

// pglockHeartbeat sends the heartbeats of locks that are held.
func pglockHeartbeat(t *testing.T, s *pgtest.Server, driver string, clients int) op {
	t.Helper()
	client, err := pglock.UnsafeNew(open(t, driver, s.Schema(t), clients), pglock.WithHeartbeatFrequency(0), pglock.WithLeaseDuration(ttl))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.CreateTable(); err != nil {
		t.Fatal(err)
	}
	locks := make([]*pglock.Lock, clients*leasesEach())
	for i := range locks {
		if locks[i], err = client.AcquireContext(t.Context(), strconv.Itoa(i), pglock.FailIfLocked()); err != nil {
			t.Fatal(err)
		}
	}
	return func(ctx context.Context, c, i int) error { return client.SendHeartbeat(ctx, locks[nth(c, i)]) }
}
