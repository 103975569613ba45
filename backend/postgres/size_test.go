package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
)

// noise returns n bytes that do not compress, and hold every value.
func noise(n int) []byte {
	state := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(state)
	return state
}

func TestStatesOfEverySizeAreStored(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		position := func() int { return scan[int](t, f.admin, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn") }
		for _, size := range []int{1, 1 << 10, 1 << 20, 64 << 20} {
			t.Run(fmt.Sprint(size), func(t *testing.T) {
				defer runtime.GC() // so that copies of one size do not add to those of the next
				state, began := noise(size), time.Now()
				if err := f.store.Checkpoint(t.Context(), record, state, time.Minute); err != nil {
					t.Fatal(err)
				}
				saved := time.Now()
				found, err := f.store.ReadCheckpoint(t.Context(), record)
				if err != nil || !bytes.Equal(found.State, state) {
					t.Fatalf("read %d bytes, %v", len(found.State), err)
				}
				t.Logf("saved in %v, read in %v", saved.Sub(began).Round(time.Millisecond), time.Since(saved).Round(time.Millisecond))
				// The first renewal may log the whole page, if the server has made a checkpoint meanwhile.
				least := 0
				for i := range 4 {
					before := position()
					if err := renewMinute(t.Context(), f.store, record); err != nil {
						t.Fatal(err)
					}
					if logged := position() - before; i == 0 || logged < least {
						least = logged
					}
				}
				t.Logf("a renewal logs %d bytes", least)
				if least >= 1024 {
					t.Errorf("a renewal logs %d bytes", least)
				}
			})
		}
	})
}

func TestStateAboveTheLimitIsRefusedAndCostsNothing(t *testing.T) {
	const limit = 1 << 10 // 500 MiB would be a strain on who runs this
	postgres.MaxState(t, limit)
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		record := acquire(t, f.store, "w", "a", time.Minute)
		if err := f.store.Checkpoint(t.Context(), record, noise(limit), time.Minute); err != nil {
			t.Fatal(err)
		}
		tx := begin(t, f.db)
		for name, ctx := range map[string]context.Context{"alone": t.Context(), "in a transaction": postgres.InTx(t.Context(), tx)} {
			err := f.store.Checkpoint(ctx, record, noise(limit+1), time.Minute)
			if err == nil || !strings.Contains(err.Error(), "more than the limit of 1024") {
				t.Errorf("%s: %v", name, err)
			}
			mustNotMatch(t, err, backend.ErrFenced, backend.ErrLeaseExpired)
		}
		err := f.store.CheckpointRelease(t.Context(), record, noise(limit+1), backend.ExitFinished)
		if err == nil || !strings.Contains(err.Error(), "more than the limit of 1024") {
			t.Errorf("with a release: %v", err)
		}
		if err := tx.Commit(); err == nil {
			t.Error("the transaction was committed without the checkpoint")
		}
		if found, err := f.store.ReadCheckpoint(t.Context(), record); err != nil || !bytes.Equal(found.State, noise(limit)) {
			t.Errorf("read %d bytes, %v", len(found.State), err)
		}
		if err := renewMinute(t.Context(), f.store, record); err != nil {
			t.Error(err)
		}
	})
}
