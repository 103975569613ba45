package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
)

type attemptCounter struct {
	worklease.NoopObserver
	made atomic.Int64
}

func (c *attemptCounter) OnAcquire(context.Context, worklease.AcquireEvent) { c.made.Add(1) }

// Those who wait learn of a release by the look that they share, and of what is held they try nothing.
func TestWaitersTryWhatALookFoundFree(t *testing.T) {
	const ids = 20
	eachDriver(t, func(t *testing.T, driver string) {
		f, _ := newProxied(t, driver)
		f.db.SetMaxOpenConns(4)
		var attempts attemptCounter
		lease, err := worklease.New(f.store, worklease.Config{TTL: time.Minute, HolderID: "a", Observer: &attempts})
		if err != nil {
			t.Fatal(err)
		}
		records := make([]backend.LeaseRecord, ids)
		var waiters sync.WaitGroup
		for i := range ids {
			id := fmt.Sprint("w", i)
			records[i] = acquire(t, f.store, id, "rival", time.Hour)
			waiters.Go(func() {
				if _, err := lease.Acquire(t.Context(), id, worklease.WithWaitForLease(), worklease.WithPollInterval(time.Hour)); err != nil {
					t.Error(err)
				}
			})
		}
		await(t, "everybody to be refused", func() bool { return attempts.made.Load() >= ids })
		for _, record := range records {
			if err := f.store.Release(t.Context(), record, backend.ExitFinished); err != nil {
				t.Fatal(err)
			}
		}
		waiters.Wait()
		if n := attempts.made.Load(); n != 2*ids {
			t.Errorf("%d attempts, want one before each wait and one after", n)
		}
	})
}
