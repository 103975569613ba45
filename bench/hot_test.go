package bench

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/aetomala/worklease/internal/pgtest"
)

func tableHOT(t *testing.T, s *pgtest.Server) {
	tab := table{
		title: "What renewing does to the table",
		about: "200 leases with 100 B of state, on one connection, with autovacuum off.",
		head:  []string{"renewals", "HOT updates", "table before", "after", "primary key before", "after"},
	}
	leases := pick(200, 5)
	f := newFixture(t, s, "pgx", 1)
	records := f.leases(t, leases, state100)
	admin := pgtest.Open(t, "pgx", f.dsn)
	size := func(relation string) string {
		return fmt.Sprintf("%d KiB", scan[int64](t, admin, "SELECT pg_relation_size($1::regclass) / 1024", relation))
	}

	updates, hot := f.updates(t, admin, int64(leases)) // giving them state was one each
	tableBefore, keyBefore := size("worklease_leases"), size("worklease_leases_pkey")
	renewals := times(20_000)
	f.renewAll(t, records, renewals)
	updatesAfter, hotAfter := f.updates(t, admin, updates+int64(renewals))

	tab.add(fmt.Sprint(updatesAfter-updates),
		fmt.Sprintf("%.2f %%", 100*float64(hotAfter-hot)/float64(updatesAfter-updates)),
		tableBefore, size("worklease_leases"), keyBefore, size("worklease_leases_pkey"))
	tab.print(t)
}

// updates returns how many updates the table has seen and how many of them were HOT, once the first
// is as many as are known to have happened. A server process hands its counts on when it ends, and
// not always before: the store's connections are closed for that.
func (f *fixture) updates(t *testing.T, admin *sql.DB, known int64) (all, hot int64) {
	t.Helper()
	f.db.SetMaxIdleConns(0)
	f.db.SetMaxIdleConns(1)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := admin.QueryRowContext(t.Context(), `
			SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'worklease_leases'::regclass`).Scan(&all, &hot)
		switch {
		case err != nil:
			t.Fatal(err)
		case all >= known:
			return all, hot
		case time.Now().After(deadline):
			t.Fatalf("the server knows of %d updates, there were %d", all, known)
		}
	}
}
