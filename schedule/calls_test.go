package schedule_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/schedule"
)

// delaying is a combining store with delayed releases.
type delaying struct {
	*faulty.Combining
	backend.DelayedReleaser
	after int
}

func (d *delaying) ReleaseAfter(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode, delay time.Duration) error {
	d.after++
	return d.DelayedReleaser.ReleaseAfter(ctx, record, mode, delay)
}

func newDelaying() *delaying {
	m := memory.New()
	return &delaying{Combining: &faulty.Combining{Store: &faulty.Store{Backend: m}}, DelayedReleaser: m}
}

// calls are how often each call was made.
type calls struct{ acquire, acquireRead, read, checkpoint, checkpointRelease, release, after int }

func (d *delaying) calls() calls {
	return calls{
		int(d.Acquires.Load()), int(d.AcquireReads.Load()), int(d.Reads.Load()), int(d.Checkpoints.Load()),
		int(d.CheckpointReleases.Load()), int(d.Releases.Load()), d.after,
	}
}

func TestRunMakesAsFewCallsAsTheStoreLets(t *testing.T) {
	slot := time.Date(2026, time.December, 1, 3, 0, 0, 0, time.UTC)
	extended := func(ctx context.Context) error { return schedule.Extend(ctx, time.Minute, 0) }
	for _, tc := range []struct {
		name    string
		slot    bool
		atLeast time.Duration
		cannot  bool // what is two calls in one
		fn      func(context.Context) error
		want    calls
	}{
		{name: "plain", want: calls{acquire: 1, release: 1}},
		{name: "slot", slot: true, want: calls{acquireRead: 1, checkpoint: 1, checkpointRelease: 1}},
		{name: "slot, extended", slot: true, fn: extended, want: calls{acquireRead: 1, checkpoint: 1, checkpointRelease: 1}},
		{
			name: "slot, AtLeastFor", slot: true, atLeast: time.Second,
			want: calls{acquireRead: 1, checkpoint: 2, after: 1},
		}, {
			name: "slot, on a store that says it cannot", slot: true, cannot: true,
			want: calls{acquire: 1, acquireRead: 1, read: 1, checkpoint: 2, checkpointRelease: 1, release: 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newDelaying()
				if tc.cannot {
					store.OnAcquireRead = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
						return backend.LeaseRecord{}, backend.Checkpoint{}, errors.ErrUnsupported
					}
					store.OnCheckpointRelease = func(context.Context, backend.LeaseRecord, []byte, backend.ExitMode) error {
						return errors.ErrUnsupported
					}
				}
				node := nodeOf(t, store, "a")
				task := schedule.Task{Name: name, AtMostFor: 10 * time.Second, AtLeastFor: tc.atLeast}
				if tc.slot {
					task.Slot = slot
				}
				fn := tc.fn
				if fn == nil {
					fn = func(context.Context) error { return nil }
				}
				r, err := node.Run(t.Context(), task, fn)
				want(t, r, err, schedule.OutcomeRan)
				if got := store.calls(); got != tc.want {
					t.Errorf("calls = %+v, want %+v", got, tc.want)
				}
				if !tc.slot {
					return
				}
				time.Sleep(tc.atLeast)
				r, err = nodeOf(t, store, "b").Run(t.Context(), task, never(t))
				want(t, r, err, schedule.OutcomeAlreadyRan)
			})
		})
	}
}

// Nobody is told that the slot was run if that may not be so.
func TestSlotThatCouldNotBeSavedIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newDelaying()
		store.OnCheckpointRelease = func(context.Context, backend.LeaseRecord, []byte, backend.ExitMode) error { return errStore }
		task := schedule.Task{Name: name, AtMostFor: 10 * time.Second, Slot: time.Date(2026, time.December, 1, 3, 0, 0, 0, time.UTC)}
		r, err := nodeOf(t, store, "a").Run(t.Context(), task, func(context.Context) error { return nil })
		want(t, r, err, schedule.OutcomeRan, errStore)
		ran := false
		store.OnCheckpointRelease = nil
		r, err = nodeOf(t, store, "b").Run(t.Context(), task, func(ctx context.Context) error {
			_, ran = worklease.LeaseWindow(ctx)
			return nil
		})
		want(t, r, err, schedule.OutcomeRan)
		if !ran {
			t.Error("the slot is not run again")
		}
	})
}
