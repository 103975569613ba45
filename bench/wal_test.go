package bench

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"strconv"
	"testing"

	"github.com/aetomala/worklease/internal/pgtest"
)

// walPosition is where the log ends, including what is not written out yet.
func walPosition(t *testing.T, db *sql.DB) int64 {
	t.Helper()
	return scan[int64](t, db, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
}

func tableWAL(t *testing.T, s *pgtest.Server) {
	tab := table{
		title: "Write-ahead log of a renewal",
		about: "Bytes, over 2,000 renewals of 200 leases. The other table has no storage parameters and an index on updated_at, which its renewal writes too.",
		head:  []string{"state", "worklease", "with an indexed updated_at", "ratio"},
	}
	leases := pick(200, 5)
	renewals := times(2000)
	for _, size := range []int{200, 1024} {
		state := make([]byte, size)
		rand.Read(state) // cannot be compressed

		ours := newFixture(t, s, "pgx", 1)
		records := ours.leases(t, leases, state)

		indexed := newFixture(t, s, "pgx", 1)
		execute(t, indexed.db, `
			ALTER TABLE worklease_leases RESET (fillfactor, toast_tuple_target);
			CREATE INDEX ON worklease_leases (updated_at)`)
		theirs := indexed.leases(t, leases, state)
		stmt := prepare(t, indexed.db, `
			UPDATE worklease_leases SET expires_at = clock_timestamp() + interval '1 hour', updated_at = clock_timestamp()
			WHERE work_id = $1 AND holder_id = $2 AND fencing_token = $3 AND exit_mode IS NULL AND expires_at > clock_timestamp()`)

		renewOurs := func() { ours.renewAll(t, records, renewals) }
		renewTheirs := func() {
			for i := range renewals {
				record := theirs[i%leases]
				if _, err := stmt.ExecContext(t.Context(), record.WorkID, record.HolderID, int64(record.FencingToken)); err != nil {
					t.Fatal(err)
				}
			}
		}
		each := func(renew func()) float64 {
			renew() // after a checkpoint the first change of a page logs all of it
			before := walPosition(t, ours.db)
			renew()
			return float64(walPosition(t, ours.db)-before) / float64(renewals)
		}
		a, b := each(renewOurs), each(renewTheirs)
		tab.add(strconv.Itoa(size)+" B", fmt.Sprintf("%.0f", a), fmt.Sprintf("%.0f", b), fmt.Sprintf("1 : %.1f", b/a))
	}
	tab.print(t)
}
