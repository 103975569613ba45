package postgres_test

import (
	"context"
	"database/sql"
	"log"
	"os"
	"strconv"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/worker"
)

// A program at its start: its own connections for the leases, the table made or brought up to date, and a
// look for what would fail later.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(4)
	if err := postgres.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	if err := postgres.Check(ctx, db); err != nil {
		log.Fatal(err)
	}
	store, err := postgres.New(db)
	if err != nil {
		log.Fatal(err)
	}
	lease, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	token, err := lease.Acquire(ctx, "report-2026", worklease.WithWaitForLease())
	if err != nil {
		log.Fatal(err)
	}
	log.Println("acquired", token)
}

// Each batch of rows and the checkpoint that tells of it are one transaction. So every row is
// transferred exactly once: whoever carries on does so behind the last row that was committed, and a
// holder that was superseded cannot commit.
func ExampleInTx() {
	leases, err := sql.Open("pgx", os.Getenv("DATABASE_URL")) // the store's own connections
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL")) // the work's, to the same database
	if err != nil {
		log.Fatal(err)
	}
	store, err := postgres.New(leases)
	if err != nil {
		log.Fatal(err)
	}
	lease, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	runner, err := worker.NewRunner(worker.RunnerConfig{Lease: lease, WorkFn: transfer(db, lease)})
	if err != nil {
		log.Fatal(err)
	}
	if err := runner.Run(context.Background(), "transfer"); err != nil {
		log.Fatal(err)
	}
}

// transfer returns the work: to copy all rows of the table source to the table target. Its checkpoint is
// the ID of the last row.
func transfer(db *sql.DB, lease worklease.Lease) worker.WorkFn {
	return func(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
		var last int64
		if prior.State != nil {
			var err error
			if last, err = strconv.ParseInt(string(prior.State), 10, 64); err != nil {
				return nil, err
			}
		}
		for {
			next, err := transferBatch(ctx, db, lease, token, last)
			if err != nil {
				return nil, err
			}
			if next == last {
				return nil, worklease.ErrRetire // nil: the last checkpoint stays
			}
			last = next
		}
	}
}

func transferBatch(ctx context.Context, db *sql.DB, lease worklease.Lease, token worklease.Token, last int64) (int64, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // of no effect after the commit

	var next int64
	err = tx.QueryRowContext(ctx, `
		WITH batch AS (SELECT id, amount FROM source WHERE id > $1 ORDER BY id LIMIT 50),
		     moved AS (INSERT INTO target (id, amount) SELECT id, amount FROM batch RETURNING id)
		SELECT coalesce(max(id), $1) FROM moved`, last).Scan(&next)
	if err != nil || next == last {
		return next, err
	}
	// This is the last statement before Commit, since it locks the lease's row.
	state := strconv.AppendInt(nil, next, 10)
	if err := lease.Checkpoint(postgres.InTx(ctx, tx), token, state); err != nil {
		return 0, err
	}
	return next, tx.Commit()
}
