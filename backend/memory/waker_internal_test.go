package memory

import (
	"fmt"
	"sync"
	"testing"

	"github.com/aetomala/worklease/backend"
)

func TestStopLeavesNothingOfAWaiter(t *testing.T) {
	b := New()
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			workID := fmt.Sprint("work ", i%10)
			for range 100 {
				woken, stop := b.Wake(workID)
				mine, err := b.Acquire(t.Context(), workID, fmt.Sprint(i), 0)
				if err == nil {
					_ = b.Forget(t.Context(), mine) // fails if somebody else has acquired meanwhile
				}
				select {
				case <-woken:
				default:
				}
				stop()
				stop()
			}
		})
	}
	all.Wait()
	for i := range b.shards {
		if n := len(b.shards[i].waiters); n != 0 {
			t.Errorf("waiters for %d work IDs are left", n)
		}
	}
}

func TestCapabilities(t *testing.T) {
	var b backend.Backend = New()
	for name, has := range map[string]bool{
		"BatchRenewer":       has[backend.BatchRenewer](b),
		"Looker":             has[backend.Looker](b),
		"AcquireReader":      has[backend.AcquireReader](b),
		"CheckpointReleaser": has[backend.CheckpointReleaser](b),
		"DelayedReleaser":    has[backend.DelayedReleaser](b),
		"Waker":              has[backend.Waker](b),
	} {
		if !has {
			t.Errorf("the store has no %s, so that the conformance suite skips it", name)
		}
	}
}

func has[T any](b backend.Backend) bool {
	_, ok := backend.As[T](b)
	return ok
}
