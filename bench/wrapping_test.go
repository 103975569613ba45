package bench

import (
	"context"
	"testing"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/pgtest"
)

// renewByHand is the store's statement without its name as a parameter.
const renewByHand = `
UPDATE worklease_leases SET expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond'
WHERE work_id = $1::text AND holder_id = $2::text AND fencing_token = $3::bigint AND exit_mode IS NULL
  AND expires_at > clock_timestamp()
RETURNING expires_at > clock_timestamp()`

func tableWrapping(t *testing.T, s *pgtest.Server) {
	tab := table{
		title: "What the store's own code costs",
		about: "Renew through the store, the same statement in a *sql.Stmt = 1; fsync off.",
		head:  []string{"driver", "1 client", "8 clients"},
	}
	c := newClock(t, s)
	for _, driver := range drivers {
		row := []string{label[driver]}
		for _, clients := range pick([]int{1, 8}, []int{1, 2}) {
			f := newFixture(t, s, driver, clients)
			records := f.leases(t, clients*leasesEach(), state100)
			stmt := prepare(t, f.db, renewByHand)
			medians := compare(length(roundLength),
				throughput(t, c, clients, renew(f, records)),
				throughput(t, c, clients, func(ctx context.Context, client, i int) error {
					record := records[nth(client, i)]
					var live bool
					return stmt.QueryRowContext(ctx, record.WorkID, record.HolderID, int64(record.FencingToken),
						ttl.Microseconds()).Scan(&live)
				}),
			)
			row = append(row, against(medians[0], medians[1]))
		}
		tab.add(row...)
	}
	tab.print(t)
}

func renew(f *fixture, records []backend.LeaseRecord) op {
	return func(ctx context.Context, client, i int) error {
		return f.store.Renew(ctx, records[nth(client, i)], ttl)
	}
}
