package bench

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/pgtest"
)

func tableBatch(t *testing.T, quick, durable *pgtest.Server) {
	leases := pick(2000, 20)
	tab := table{
		title: "Renewals in batches",
		about: fmt.Sprintf("RenewBatch of %d leases, in batches, against as many Renews: leases a second, and in brackets leases a second "+
			"of processor time. One client, on one connection.", leases),
		head: []string{"driver", "leases in a batch", "fsync off", "fsync on", "WAL of a lease", "against Renew"},
	}
	for _, driver := range drivers {
		for _, size := range pick([]int{1, 10, 100, 1000}, []int{1, 10}) {
			cells := []string{label[driver], strconv.Itoa(size)}
			var wal []string
			for _, s := range []*pgtest.Server{quick, durable} {
				f := newFixture(t, s, driver, 1)
				records := f.leases(t, leases, make([]byte, 200))
				execute(t, f.db, "ANALYZE worklease_leases")
				c := newClock(t, s)
				single := throughput(t, c, 1, func(ctx context.Context, _, i int) error {
					return f.store.Renew(ctx, records[i%leases], ttl)
				})
				renew := func(ctx context.Context, i int) error {
					from := i * size % leases
					return renewBatch(ctx, f, records[from:from+size])
				}
				batch := throughput(t, c, 1, func(ctx context.Context, _, i int) error { return renew(ctx, i) })
				samples := compare(length(roundLength), single, func(d time.Duration) sample {
					sent := batch(d)
					return sample{rate: sent.rate * float64(size), cpu: sent.cpu / float64(size)}
				})
				cells = append(cells, against(samples[1], samples[0]))
				if s == quick {
					wal = batchWAL(t, f, records, size, renew)
				}
			}
			tab.add(append(cells, wal...)...)
		}
	}
	tab.print(t)
}

func renewBatch(ctx context.Context, f *fixture, records []backend.LeaseRecord) error {
	verdicts, err := f.store.RenewBatch(ctx, records, ttl)
	for _, verdict := range verdicts {
		if err == nil {
			err = verdict
		}
	}
	return err
}

// batchWAL returns what a lease logs in a batch, in bytes and against a renewal of its own.
func batchWAL(t *testing.T, f *fixture, records []backend.LeaseRecord, size int, renew func(context.Context, int) error) []string {
	t.Helper()
	renewals := 4 * len(records)
	each := func(renewAll func()) float64 {
		renewAll()
		before := walPosition(t, f.db)
		renewAll()
		return float64(walPosition(t, f.db)-before) / float64(renewals)
	}
	batch := each(func() {
		for i := range renewals / size {
			if err := renew(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}
	})
	single := each(func() { f.renewAll(t, records, renewals) })
	return []string{fmt.Sprintf("%.0f B", batch), fmt.Sprintf("%.2f", batch/single)}
}
