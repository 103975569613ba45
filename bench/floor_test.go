package bench

import (
	"bytes"
	"context"
	"strconv"
	"testing"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/pgtest"
)

var state100 = bytes.Repeat([]byte{'x'}, 100)

// floors are the operations of the store, and what remains of each without any of its conditions,
// answers and parameters: the same columns of a row found by its primary key.
var floors = []struct {
	name   string
	do     func(f *fixture, records []backend.LeaseRecord) op
	script string
	reads  bool // and so does not care about fsync
}{
	{"Acquire + Release", func(f *fixture, _ []backend.LeaseRecord) op { return acquireRelease(f) }, `
UPDATE worklease_leases SET holder_id = 'holder', fencing_token = fencing_token + 1, expires_at = clock_timestamp() + interval '1 hour', exit_mode = NULL, prev_exit_mode = 'finished', prev_holder_id = 'holder', acquired_at = clock_timestamp(), updated_at = clock_timestamp() WHERE work_id = :id;
UPDATE worklease_leases SET exit_mode = 'finished', expires_at = clock_timestamp(), updated_at = clock_timestamp() WHERE work_id = :id;`, false},

	{"Renew", renew, `
UPDATE worklease_leases SET expires_at = clock_timestamp() + interval '1 hour' WHERE work_id = :id;`, false},

	{"Checkpoint, 100 B", func(f *fixture, records []backend.LeaseRecord) op {
		return func(ctx context.Context, client, i int) error {
			return f.store.Checkpoint(ctx, records[nth(client, i)], state100, ttl)
		}
	}, `
UPDATE worklease_leases SET checkpoint = convert_to('` + string(state100) + `', 'UTF8'), expires_at = clock_timestamp() + interval '1 hour', updated_at = clock_timestamp() WHERE work_id = :id;`, false},

	{"ReadCheckpoint", func(f *fixture, records []backend.LeaseRecord) op {
		return func(ctx context.Context, client, i int) error {
			_, err := f.store.ReadCheckpoint(ctx, records[nth(client, i)])
			return err
		}
	}, `
SELECT checkpoint, prev_exit_mode, prev_holder_id FROM worklease_leases WHERE work_id = :id;`, true},
}

// acquireRelease takes and gives back leases that nobody else wants, and whose rows are there.
func acquireRelease(f *fixture) op {
	return func(ctx context.Context, client, i int) error {
		record, err := f.store.Acquire(ctx, "free "+strconv.Itoa(nth(client, i)), "holder", ttl)
		if err != nil {
			return err
		}
		return f.store.Release(ctx, record, backend.ExitFinished)
	}
}

func tableFloor(t *testing.T, quick, durable *pgtest.Server) {
	program := findPgbench(t)
	tab := table{
		title: "The store against the floor",
		about: "pgbench with the bare statements, prepared, by primary key = 1.",
		head:  []string{"operation", "fsync", "clients"},
	}
	for _, driver := range drivers {
		tab.head = append(tab.head, label[driver])
	}
	for _, fsync := range pick([]string{"on", "off"}, []string{"off"}) {
		s := map[string]*pgtest.Server{"on": durable, "off": quick}[fsync]
		c := newClock(t, s)
		for _, clients := range pick([]int{1, 8}, []int{2}) {
			raw := newFixture(t, s, "pgx", clients)
			raw.leases(t, clients*leasesEach(), state100)
			ours := make(map[string]*fixture)
			records := make(map[string][]backend.LeaseRecord)
			for _, driver := range drivers {
				ours[driver] = newFixture(t, s, driver, clients)
				records[driver] = ours[driver].leases(t, clients*leasesEach(), state100)
			}
			for _, floor := range floors {
				if floor.reads && fsync == "on" {
					continue
				}
				var variants []variant
				for _, driver := range drivers {
					variants = append(variants, throughput(t, c, clients, floor.do(ours[driver], records[driver])))
				}
				if program == "" {
					compare(length(roundLength), variants...)
					continue
				}
				variants = append(variants, pgbench(t, c, program, raw.dsn, onOwnLease(floor.script), clients))
				medians := compare(length(roundLength), variants...)
				row := []string{floor.name, fsync, strconv.Itoa(clients)}
				for i := range drivers {
					row = append(row, against(medians[i], medians[len(drivers)]))
				}
				tab.add(row...)
			}
		}
	}
	tab.print(t)
}
