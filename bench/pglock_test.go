package bench

import (
	"context"
	"strconv"
	"testing"

	"cirello.io/pglock"

	"github.com/aetomala/worklease/internal/pgtest"
)

func tablePglock(t *testing.T, quick, durable *pgtest.Server) {
	tab := table{
		title: "Acquire and release against pglock",
		about: "pglock 1.16.1 on the same driver = 1; 8 clients. It keeps the row on release and sends no heartbeats.",
		head:  []string{"driver", "fsync on", "fsync off"},
	}
	clients := pick(8, 2)
	for _, driver := range drivers {
		row := []string{label[driver]}
		for _, s := range []*pgtest.Server{durable, quick} {
			c := newClock(t, s)
			medians := compare(length(roundLength),
				throughput(t, c, clients, acquireRelease(newFixture(t, s, driver, clients))),
				throughput(t, c, clients, pglockAcquireRelease(t, s, driver, clients)),
			)
			row = append(row, against(medians[0], medians[1]))
		}
		tab.add(row...)
	}
	tab.print(t)
}

func pglockAcquireRelease(t *testing.T, s *pgtest.Server, driver string, clients int) op {
	t.Helper()
	// "Unsafe" is any driver but lib/pq, which it would insist on.
	client, err := pglock.UnsafeNew(open(t, driver, s.Schema(t), clients), pglock.WithHeartbeatFrequency(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.CreateTable(); err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, c, i int) error {
		lock, err := client.AcquireContext(ctx, strconv.Itoa(nth(c, i)), pglock.KeepOnRelease(), pglock.FailIfLocked())
		if err != nil {
			return err
		}
		return client.ReleaseContext(ctx, lock)
	}
}
