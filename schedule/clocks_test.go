package schedule_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/schedule"
)

// slow is a store whose calls take as long as on a server.
type slow struct{ *memory.Backend }

func takeTime() { time.Sleep(time.Millisecond + rand.N(4*time.Millisecond)) }

func (s slow) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	takeTime()
	defer takeTime()
	return s.Backend.Acquire(ctx, workID, holderID, ttl)
}

func (s slow) ReadCheckpoint(ctx context.Context, record backend.LeaseRecord) (backend.Checkpoint, error) {
	takeTime()
	return s.Backend.ReadCheckpoint(ctx, record)
}

func (s slow) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	takeTime()
	return s.Backend.Checkpoint(ctx, record, state, ttl)
}

func (s slow) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	takeTime()
	return s.Backend.Release(ctx, record, mode)
}

// Twenty nodes, sixty slots of a second: sixty runs. Where a call takes time, a look at a slot may be in the way
// of the next one. That costs a run only if the clocks are further apart than slots are.
func TestEachSlotIsRunOnceWhateverTheClocksSay(t *testing.T) {
	const nodes, ticks = 20, 60
	for _, tc := range []struct {
		name  string
		store backend.Backend
		ahead func(node int) time.Duration
		all   bool // slots are run
	}{
		{"seconds apart", memory.New(), func(int) time.Duration { return rand.N(3 * time.Second) }, true},
		{"less than a slot apart, and calls take time", slow{memory.New()}, func(int) time.Duration { return rand.N(900 * time.Millisecond) }, true},
		{"whole slots apart, and calls take time", slow{memory.New()}, func(node int) time.Duration { return time.Duration(node%4) * time.Second }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				runs := make(map[time.Time]int)
				first := time.Now().Add(time.Minute)
				var wg sync.WaitGroup
				for i := range nodes {
					wg.Go(func() {
						ahead := tc.ahead(i) // of the true time
						s := nodeOf(t, tc.store, fmt.Sprint("node-", i))
						for tick := range ticks {
							slot := first.Add(time.Duration(tick) * time.Second)
							time.Sleep(time.Until(slot) - ahead + rand.N(5*time.Millisecond))
							_, err := s.Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute, Slot: slot}, func(ctx context.Context) error {
								mine, ok := schedule.SlotOf(ctx)
								mu.Lock()
								runs[mine]++
								mu.Unlock()
								if !ok || !mine.Equal(slot) {
									t.Errorf("slot %v, want %v", mine, slot)
								}
								time.Sleep(5 * time.Millisecond)
								return nil
							})
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				for slot, n := range runs {
					if n != 1 {
						t.Errorf("slot %v was run %d times", slot.Sub(first), n)
					}
				}
				if tc.all && len(runs) != ticks || len(runs) == 0 {
					t.Errorf("%d slots were run, want %d", len(runs), ticks)
				}
			})
		})
	}
}
