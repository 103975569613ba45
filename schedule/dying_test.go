package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/schedule"
)

// dying is a node's way to the store, which ends with its process: before the last call is made, or after that
// and before the answer. What the node makes of that is no matter.
type dying struct {
	*memory.Backend
	combines bool // two steps in one
	mu       sync.Mutex
	calls    int // that are made
	answered int // that are answered, which is as many or one less
	said     []string
}

func (d *dying) call(what string, make func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls, d.answered = d.calls-1, d.answered-1
	if d.calls < 0 {
		return errStore
	}
	d.said = append(d.said, what)
	if err := make(); err != nil {
		return err
	}
	if d.answered < 0 {
		return errStore
	}
	return nil
}

func (d *dying) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (r backend.LeaseRecord, err error) {
	err = d.call("Acquire", func() (err error) { r, err = d.Backend.Acquire(ctx, workID, holderID, ttl); return err })
	return r, err
}

func (d *dying) ReadCheckpoint(ctx context.Context, record backend.LeaseRecord) (c backend.Checkpoint, err error) {
	err = d.call("ReadCheckpoint", func() (err error) { c, err = d.Backend.ReadCheckpoint(ctx, record); return err })
	return c, err
}

func (d *dying) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	return d.call("Checkpoint", func() error { return d.Backend.Checkpoint(ctx, record, state, ttl) })
}

func (d *dying) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	return d.call("Renew", func() error { return d.Backend.Renew(ctx, record, ttl) })
}

func (d *dying) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	return d.call("Release", func() error { return d.Backend.Release(ctx, record, mode) })
}

func (d *dying) AcquireRead(ctx context.Context, workID, holderID string, ttl time.Duration) (r backend.LeaseRecord, c backend.Checkpoint, err error) {
	if !d.combines {
		return r, c, errors.ErrUnsupported
	}
	err = d.call("AcquireRead", func() (err error) { r, c, err = d.Backend.AcquireRead(ctx, workID, holderID, ttl); return err })
	return r, c, err
}

func (d *dying) CheckpointRelease(ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
	if !d.combines {
		return errors.ErrUnsupported
	}
	return d.call("CheckpointRelease", func() error { return d.Backend.CheckpointRelease(ctx, record, state, mode) })
}

// A node dies at each of its calls. Whatever came of the call, another node has the slot run, unless it is to
// be skipped; a run whose end is stored is the last; and the next slot is run in any case.
func TestNodeMayDieAtAnyCall(t *testing.T) {
	for _, way := range []struct {
		combines             bool
		calls, begin, finish int // how many there are, and which are the ones that save an instant
	}{
		{false, 5, 3, 4}, // Acquire, ReadCheckpoint, Checkpoint, the function, Checkpoint, Release
		{true, 3, 2, 3},  // AcquireRead, Checkpoint, the function, CheckpointRelease
	} {
		for _, catchUp := range []schedule.CatchUp{schedule.CatchUpOnce, schedule.CatchUpSkip} {
			for n := range way.calls + 1 {
				for lost := range 2 {
					if n == 0 && lost == 1 {
						continue
					}
					t.Run(fmt.Sprintf("of %d calls, policy %d, after %d, %d of them without an answer", way.calls, catchUp, n, lost), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							d := &dying{Backend: memory.New(), combines: way.combines, calls: n, answered: n - lost}
							task := schedule.Task{Name: name, AtMostFor: time.Minute, CatchUp: catchUp, Slot: at(1)}
							runs := 0
							run := func(b backend.Backend, holderID string, slot time.Time) schedule.Result {
								task.Slot = slot
								r, err := nodeOf(t, b, holderID).Run(t.Context(), task, func(ctx context.Context) error {
									if mine, _ := schedule.SlotOf(ctx); mine.Equal(at(1)) {
										runs++
									}
									return nil
								})
								if err != nil && holderID != "a" {
									t.Error(err)
								}
								return r
							}
							run(d, "a", at(1))
							time.Sleep(time.Minute)
							begun, stored := n >= way.begin, n >= way.finish
							want := schedule.OutcomeRan
							switch {
							case stored:
								want = schedule.OutcomeAlreadyRan
							case begun && catchUp == schedule.CatchUpSkip:
								want = schedule.OutcomeMissed
							}
							if got := run(d.Backend, "b", at(1)).Outcome; got != want {
								t.Errorf("%v: the next node: %v, want %v", d.said, got, want)
							}
							once := runs == 1 || runs == 0 && want == schedule.OutcomeMissed
							if twice := begun && lost == 0 && !stored && catchUp == schedule.CatchUpOnce; twice != (runs == 2) || !twice && !once {
								t.Errorf("%v: %d runs", d.said, runs)
							}
							if got := run(d.Backend, "b", at(2)); got.Outcome != schedule.OutcomeRan || !got.CaughtUp.IsZero() {
								t.Errorf("%v: the next slot: %+v", d.said, got)
							}
						})
					})
				}
			}
		}
	}
}
