package pool_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
)

func TestIdleSlotIsWokenByARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		record, err := store.Acquire(t.Context(), workID, "rival", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		release := 10*idle + idle/2
		time.AfterFunc(release, func() {
			if err := store.Release(context.Background(), record, backend.ExitFinished); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		var began []time.Duration
		p := newPool(t, leaseOf(t, store, "a"), config(workID), func(context.Context, string, worklease.Token, worklease.Checkpoint) ([]byte, error) {
			began = append(began, time.Since(start))
			return nil, nil
		})
		runFor(t, p, release+rerun-1)
		if len(began) != 1 || began[0] != release { // its own release does not cut the pause after a success short
			t.Errorf("the work began at %v, want once, at %v", began, release)
		}
	})
}
