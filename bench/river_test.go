package bench

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/leader"

	"github.com/aetomala/worklease/internal/pgtest"
)

// River's elector cannot be imported. What it asks of its driver can: these are the calls that it makes, in the
// order in which it makes them.
func tableRiver(t *testing.T, quick, durable *pgtest.Server) {
	tab := table{
		title: "Leader election against River",
		about: "The statements of River 0.51.2's elector through its driver on a pgxpool = 1; ours on pgx through database/sql; 1 client, since " +
			"River has one leader. An election of River is a transaction of two statements, and its resignation notifies. Its table is unlogged: a " +
			"crash of the server empties it, and no commit waits for the disk.",
		head: []string{"what", "fsync on", "fsync off"},
	}
	rows := [][]string{{"leader.Elect against electing and resigning"}, {"Renew against re-electing"}}
	for _, s := range []*pgtest.Server{durable, quick} {
		c := newClock(t, s)
		f := newFixture(t, s, "pgx", 1)
		records := f.leases(t, leasesEach(), nil)
		lease, err := worklease.New(f.store, worklease.Config{TTL: ttl, HolderID: "holder"})
		if err != nil {
			t.Fatal(err)
		}
		elect := func(ctx context.Context, _, _ int) error {
			return leader.Elect(ctx, lease, "leader", leader.Config{}, func(context.Context) error { return nil })
		}
		cycle, again := riverLeader(t, s), riverLeader(t, s)
		term, err := again.elect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		medians := compare(length(roundLength),
			throughput(t, c, 1, elect),
			throughput(t, c, 1, func(ctx context.Context, _, _ int) error {
				term, err := cycle.elect(ctx)
				if err != nil {
					return err
				}
				return cycle.resign(ctx, term)
			}),
			throughput(t, c, 1, renew(f, records)),
			throughput(t, c, 1, func(ctx context.Context, _, _ int) error { return again.reelect(ctx, term) }),
		)
		rows[0] = append(rows[0], against(medians[0], medians[1]))
		rows[1] = append(rows[1], against(medians[2], medians[3]))
	}
	for _, row := range rows {
		tab.add(row...)
	}
	tab.print(t)
}

// river is what River's elector has of the database.
type river struct{ exec riverdriver.Executor }

// riverLeader returns it with River's tables in a schema of its own.
func riverLeader(t *testing.T, s *pgtest.Server) river {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), s.Schema(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	driver := riverpgxv5.New(pool)
	files, err := fs.Glob(driver.GetMigrationFS(riverdriver.MigrationLineMain), "*/*/*.up.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("River has no migrations: %v", err)
	}
	for _, file := range files { // in the order of their numbers
		content, err := fs.ReadFile(driver.GetMigrationFS(riverdriver.MigrationLineMain), file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(), strings.ReplaceAll(string(content), "/* TEMPLATE: schema */", "")); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return river{exec: driver.GetExecutor()}
}

func (r river) elect(ctx context.Context) (*riverdriver.Leader, error) {
	tx, err := r.exec.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // of no effect after Commit
	if _, err := tx.LeaderDeleteExpired(ctx, &riverdriver.LeaderDeleteExpiredParams{}); err != nil {
		return nil, err
	}
	term, err := tx.LeaderAttemptElect(ctx, &riverdriver.LeaderElectParams{LeaderID: "holder", TTL: ttl})
	if err != nil {
		return nil, err
	}
	return term, tx.Commit(ctx)
}

func (r river) reelect(ctx context.Context, term *riverdriver.Leader) error {
	_, err := r.exec.LeaderAttemptReelect(ctx, &riverdriver.LeaderReelectParams{ElectedAt: term.ElectedAt, LeaderID: term.LeaderID, TTL: ttl})
	return err
}

func (r river) resign(ctx context.Context, term *riverdriver.Leader) error {
	_, err := r.exec.LeaderResign(ctx, &riverdriver.LeaderResignParams{ElectedAt: term.ElectedAt, LeaderID: term.LeaderID, LeadershipTopic: "river_leadership"})
	return err
}
