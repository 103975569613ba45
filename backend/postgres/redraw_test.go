package postgres_test

import (
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
)

// stallInserts makes the INSERT of the work ID "w" wait, with its token drawn, until the transaction ends.
func stallInserts(t *testing.T, f *fixture) *sql.Tx {
	t.Helper()
	exec(t, f.admin, `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock(hashtext(current_schema())); RETURN NEW; END $$`)
	exec(t, f.admin, `CREATE TRIGGER wait BEFORE INSERT ON worklease_leases FOR EACH ROW
		WHEN (NEW.work_id = 'w') EXECUTE FUNCTION wait()`)
	tx := begin(t, f.admin)
	exec(t, tx, "SELECT pg_advisory_xact_lock(hashtext(current_schema()))")
	return tx
}

// A row that is not there cannot be locked before its token is drawn. Whoever comes late with an old one
// draws again.
func TestFirstClaimantThatStalledHasTheHighestToken(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		stall := stallInserts(t, f)
		var (
			wg  sync.WaitGroup
			got backend.LeaseRecord
			err error
		)
		wg.Go(func() { got, err = f.store.Acquire(t.Context(), "w", "a", time.Minute) })
		f.awaitBlocked(t, 1)
		elsewhere := acquire(t, f.store, "elsewhere", "b", time.Minute)
		if err := stall.Commit(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if err != nil || got.FencingToken <= elsewhere.FencingToken {
			t.Fatalf("token %d after %d, %v", got.FencingToken, elsewhere.FencingToken, err)
		}
		if err := renewMinute(t.Context(), f.store, got); err != nil {
			t.Errorf("with the token that it was given: %v", err)
		}
	})
}

// Who is overtaken before it has drawn again has no lease, and does nothing to that of the other.
func TestClaimantThatIsOvertakenBeforeItDrawsAgainHasNoLease(t *testing.T) {
	const ttl = 300 * time.Millisecond
	eachDriver(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		direct := newFixtureAt(t, driver, f.dsn)
		warm(t, f.store)
		stall := stallInserts(t, f)
		var (
			wg  sync.WaitGroup
			got backend.LeaseRecord
			err error
		)
		wg.Go(func() { got, err = f.store.Acquire(t.Context(), "w", "a", ttl) })
		f.awaitBlocked(t, 1)
		acquire(t, direct.store, "elsewhere", "b", time.Minute)
		proxy.Freeze() // the first answer does not come before the lease is over
		if err := stall.Commit(); err != nil {
			t.Fatal(err)
		}
		await(t, "the acquisition", func() bool { return f.rows(t, "holder_id = 'a' AND work_id = 'w'") == 1 })
		var next backend.LeaseRecord
		await(t, "the lease to be free", func() bool {
			var err error
			next, err = direct.store.Acquire(t.Context(), "w", "b", time.Minute)
			return err == nil
		})
		proxy.Thaw()
		wg.Wait()
		t.Logf("the first is told: %v", err)
		if err == nil || got != (backend.LeaseRecord{}) {
			t.Errorf("it got %+v", got)
		}
		mustNotMatch(t, err, backend.ErrFenced, backend.ErrLeaseHeld, backend.ErrLeaseExpired)
		if err := renewMinute(t.Context(), direct.store, next); err != nil {
			t.Errorf("the other's lease: %v", err)
		}
		if found, err := direct.store.ReadCheckpoint(t.Context(), next); err != nil || found.PrevHolderID != "a" || found.PrevExit != backend.ExitExpired {
			t.Errorf("its predecessor is %q %v, %v", found.PrevHolderID, found.PrevExit, err)
		}
	})
}
