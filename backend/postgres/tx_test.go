package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
)

func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func TestCheckpointAndBusinessRowsAreCommittedTogether(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		exec(t, f.admin, "CREATE TABLE effects (n int)")
		record := acquire(t, f.store, "w", "a", time.Minute)
		step := func(n int, state string) *sql.Tx {
			tx := begin(t, f.db)
			exec(t, tx, "INSERT INTO effects VALUES ($1)", n)
			if err := f.store.Checkpoint(postgres.InTx(t.Context(), tx), record, []byte(state), time.Minute); err != nil {
				t.Fatal(err)
			}
			return tx
		}
		if err := step(1, "one").Commit(); err != nil {
			t.Fatal(err)
		}
		if err := step(2, "two").Rollback(); err != nil {
			t.Fatal(err)
		}
		found, err := f.store.ReadCheckpoint(t.Context(), record)
		if err != nil || string(found.State) != "one" {
			t.Errorf("read %q, %v", found.State, err)
		}
		if n := scan[int](t, f.admin, "SELECT sum(n) FROM effects"); n != 1 {
			t.Errorf("the effects add up to %d", n)
		}
	})
}

func TestReadInATransactionSeesItsOwnCheckpoint(t *testing.T) {
	f := newFixture(t, "pgx")
	record := acquire(t, f.store, "w", "a", time.Minute)
	tx := begin(t, f.db)
	ctx := postgres.InTx(t.Context(), tx)
	if err := f.store.Checkpoint(ctx, record, []byte("inside"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if found, err := f.store.ReadCheckpoint(ctx, record); err != nil || string(found.State) != "inside" {
		t.Errorf("read %q, %v inside", found.State, err)
	}
	if found, err := f.store.ReadCheckpoint(t.Context(), record); err != nil || found.State != nil {
		t.Errorf("read %q, %v outside", found.State, err)
	}
	if err := f.store.Renew(ctx, record, time.Minute); err != nil {
		t.Error(err)
	}
}

func TestTransactionOfAHolderThatLostItsLeaseCannotBeCommitted(t *testing.T) {
	calls := map[string]func(f *fixture, ctx context.Context, record backend.LeaseRecord) error{
		"checkpoint": func(f *fixture, ctx context.Context, record backend.LeaseRecord) error {
			return f.store.Checkpoint(ctx, record, []byte("late"), time.Minute)
		},
		"renew": func(f *fixture, ctx context.Context, record backend.LeaseRecord) error {
			return f.store.Renew(ctx, record, time.Minute)
		},
	}
	losses := map[string]struct {
		lose func(t *testing.T, f *fixture, record backend.LeaseRecord)
		want error
	}{
		"superseded": {func(t *testing.T, f *fixture, record backend.LeaseRecord) {
			exec(t, f.admin, "UPDATE worklease_leases SET expires_at = now() - interval '1 s'")
			acquire(t, f.store, "w", "b", time.Minute)
		}, backend.ErrFenced},
		"forgotten": {func(t *testing.T, f *fixture, record backend.LeaseRecord) {
			if err := f.store.Forget(t.Context(), record); err != nil {
				t.Fatal(err)
			}
		}, backend.ErrFenced},
		"released": {func(t *testing.T, f *fixture, record backend.LeaseRecord) {
			if err := f.store.Release(t.Context(), record, backend.ExitFinished); err != nil {
				t.Fatal(err)
			}
		}, backend.ErrLeaseExpired},
	}
	eachDriver(t, func(t *testing.T, driver string) {
		for how, loss := range losses {
			for what, call := range calls {
				t.Run(how+" "+what, func(t *testing.T) {
					f := newFixture(t, driver)
					exec(t, f.admin, "CREATE TABLE effects (n int)")
					record := acquire(t, f.store, "w", "a", time.Minute)
					loss.lose(t, f, record)
					tx := begin(t, f.db)
					exec(t, tx, "INSERT INTO effects VALUES (1)")
					mustMatch(t, call(f, postgres.InTx(t.Context(), tx), record), loss.want)
					if n := f.store.Queues(); n != 0 {
						t.Errorf("%d queues behind a transaction that is over", n)
					}
					if err := tx.Commit(); err == nil { // the error above was ignored
						t.Error("the zombie committed")
					}
					if n := scan[int](t, f.admin, "SELECT count(*) FROM effects"); n != 0 {
						t.Errorf("%d effects of the zombie", n)
					}
				})
			}
		}
	})
}

func TestAnyFailureInATransactionEndsIt(t *testing.T) {
	for name, call := range map[string]func(f *fixture, tx *sql.Tx, record backend.LeaseRecord) error{
		"a context that has ended": func(f *fixture, tx *sql.Tx, record backend.LeaseRecord) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return f.store.Checkpoint(postgres.InTx(ctx, tx), record, nil, time.Minute)
		},
		"a missing table": func(f *fixture, tx *sql.Tx, record backend.LeaseRecord) error {
			exec(t, tx, "SET LOCAL search_path = pg_catalog")
			return f.store.Checkpoint(postgres.InTx(t.Context(), tx), record, nil, time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "pgx")
			exec(t, f.admin, "CREATE TABLE effects (n int)")
			record := acquire(t, f.store, "w", "a", time.Minute)
			tx := begin(t, f.db)
			exec(t, tx, "INSERT INTO effects VALUES (1)")
			if err := call(f, tx, record); err == nil {
				t.Error("the call succeeded")
			}
			if err := tx.Commit(); err == nil {
				t.Error("the transaction was committed without the checkpoint")
			}
		})
	}
}

func TestLeaseIsNeitherTakenNorGivenUpInATransaction(t *testing.T) {
	f := newFixture(t, "pgx")
	record := acquire(t, f.store, "w", "a", time.Minute)
	tx := begin(t, f.db)
	ctx := postgres.InTx(t.Context(), tx)
	_, acquireErr := f.store.Acquire(ctx, "other", "a", time.Minute)
	_, sweepErr := f.store.Sweep(ctx, backend.SweepOptions{})
	_, _, readErr := f.store.AcquireRead(ctx, "other", "a", time.Minute)
	_, batchErr := f.store.RenewBatch(ctx, []backend.LeaseRecord{record}, time.Minute)
	_, freeErr := f.store.Free(ctx, []string{"w"})
	for name, err := range map[string]error{
		"Acquire": acquireErr, "Sweep": sweepErr,
		"Release": f.store.Release(ctx, record, backend.ExitFinished), "Forget": f.store.Forget(ctx, record),
		"AcquireRead": readErr, "RenewBatch": batchErr, "Free": freeErr,
		"CheckpointRelease": f.store.CheckpointRelease(ctx, record, nil, backend.ExitFinished),
		"ReleaseAfter":      f.store.ReleaseAfter(ctx, record, backend.ExitFinished, time.Minute),
	} {
		if err == nil {
			t.Errorf("%s in a transaction", name)
		}
		mustNotMatch(t, err, backend.ErrFenced, backend.ErrLeaseHeld, backend.ErrLeaseExpired)
	}
	if err := f.store.Renew(t.Context(), record, time.Minute); err != nil {
		t.Errorf("the refused calls cost the lease: %v", err)
	}
	if n := scan[int](t, f.admin, "SELECT count(*) FROM worklease_leases"); n != 1 {
		t.Errorf("%d rows", n)
	}
	for name, err := range map[string]error{
		"Checkpoint": f.store.Checkpoint(postgres.InTx(t.Context(), nil), record, nil, time.Minute),
		"Renew":      f.store.Renew(postgres.InTx(t.Context(), nil), record, time.Minute),
	} {
		if err == nil {
			t.Errorf("%s in a nil transaction", name)
		}
	}
}

func TestWindowDoesNotMoveBeforeTheCommit(t *testing.T) {
	f := newFixture(t, "pgx")
	lease, err := worklease.New(f.store, worklease.Config{TTL: time.Minute, HolderID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	token, err := lease.Acquire(t.Context(), "w")
	if err != nil {
		t.Fatal(err)
	}
	renewCtx, stop := lease.StartRenewal(t.Context(), token)
	defer stop()
	before, _ := worklease.LeaseWindow(renewCtx)
	tx := begin(t, f.db)
	if err := lease.Checkpoint(postgres.InTx(renewCtx, tx), token, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if after, ok := worklease.LeaseWindow(renewCtx); !ok || !after.Equal(before) {
		t.Errorf("the window moved from %v to %v", before, after)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	inTx, _ := lease.StartRenewal(postgres.InTx(t.Context(), tx), token)
	if inTx.Err() == nil {
		t.Error("background renewal begins in a transaction")
	}
	if err := lease.Checkpoint(t.Context(), token, []byte("y")); err != nil {
		t.Fatal(err)
	}
	if after, _ := worklease.LeaseWindow(renewCtx); !after.After(before) {
		t.Error("the window does not move outside of the transaction either")
	}
}

func TestRenewalWaitsForTheHoldersTransactionOnOneConnection(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		lease, err := worklease.New(f.store, worklease.Config{TTL: 6 * time.Second, HolderID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		token, err := lease.Acquire(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		// A renewal that is under way just as the checkpoint is made does not know that it has to queue. The
		// first one here comes well after it.
		renewCtx, stop := lease.StartRenewal(t.Context(), token, worklease.WithRenewalInterval(time.Second))
		defer stop()
		tx := begin(t, f.db)
		if err := lease.Checkpoint(postgres.InTx(renewCtx, tx), token, []byte("x")); err != nil {
			t.Fatal(err)
		}
		f.awaitBlocked(t, 1)
		// The first attempt is given up after two seconds, and the second one begins.
		most := 0
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			most = max(most, f.blocked(t))
		}
		if most != 1 {
			t.Errorf("%d renewals wait for the row at a time", most)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		committed := time.Now()
		await(t, "renewal to go on", func() bool {
			deadline, ok := worklease.LeaseWindow(renewCtx)
			return ok && deadline.After(committed.Add(5*time.Second))
		})
		if err := context.Cause(renewCtx); err != nil {
			t.Errorf("the lease was lost: %v", err)
		}
	})
}

func TestNobodyGetsInBetweenTheCheckpointAndItsCommit(t *testing.T) {
	f := newFixture(t, "pgx")
	record := acquire(t, f.store, "w", "a", time.Minute)
	tx := begin(t, f.db)
	// The lease lapses while the transaction is open; the checkpoint revives it, but has not been seen yet.
	exec(t, f.admin, "UPDATE worklease_leases SET expires_at = now() - interval '1 s'")
	if err := f.store.Checkpoint(postgres.InTx(t.Context(), tx), record, []byte("x"), time.Minute); err != nil {
		t.Fatal(err)
	}
	var (
		wg  sync.WaitGroup
		err error
	)
	wg.Go(func() { _, err = f.store.Acquire(t.Context(), "w", "b", time.Minute) })
	f.awaitBlocked(t, 1)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	held, ok := errors.AsType[*backend.HeldError](err)
	if !ok || held.HolderID != "a" {
		t.Errorf("b gets %v", err)
	}
}

func TestTransactionsOfThePastLeaveNothingBehind(t *testing.T) {
	f := newFixture(t, "pgx")
	for name, end := range map[string]func(record backend.LeaseRecord) error{
		"Renew": func(record backend.LeaseRecord) error { return f.store.Renew(t.Context(), record, time.Minute) },
		"Release": func(record backend.LeaseRecord) error {
			return f.store.Release(t.Context(), record, backend.ExitFinished)
		},
		"Forget": func(record backend.LeaseRecord) error { return f.store.Forget(t.Context(), record) },
		"RenewBatch": func(record backend.LeaseRecord) error {
			return operations["RenewBatch"](t.Context(), f.store, record)
		},
		"CheckpointRelease": func(record backend.LeaseRecord) error {
			return f.store.CheckpointRelease(t.Context(), record, nil, backend.ExitFinished)
		},
		"ReleaseAfter": func(record backend.LeaseRecord) error {
			return f.store.ReleaseAfter(t.Context(), record, backend.ExitFinished, time.Minute)
		},
	} {
		record := acquire(t, f.store, name, "a", time.Minute)
		tx := begin(t, f.db)
		if err := f.store.Checkpoint(postgres.InTx(t.Context(), tx), record, nil, time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if n := f.store.Queues(); n != 1 {
			t.Errorf("%d leases are known to have been in a transaction", n)
		}
		if err := end(record); err != nil {
			t.Error(err)
		}
		if n := f.store.Queues(); n != 0 {
			t.Errorf("%s leaves %d behind", name, n)
		}
	}
}
