package memory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
)

// calls are the methods that take a context, each on the lease that record names.
var calls = []struct {
	name string
	call func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error
}{
	{"Acquire", func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		_, err := b.Acquire(ctx, record.WorkID, "next", time.Hour)
		return err
	}},
	{"Checkpoint", func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		return b.Checkpoint(ctx, record, []byte("new"), time.Hour)
	}},
	{"Renew", func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		return b.Renew(ctx, record, time.Hour)
	}},
	{"Release", func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		return b.Release(ctx, record, backend.ExitFinished)
	}},
	{"ReadCheckpoint", func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		_, err := b.ReadCheckpoint(ctx, record)
		return err
	}},
	{"Forget", func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		return b.Forget(ctx, record)
	}},
	{"Sweep", func(ctx context.Context, b backend.Backend, _ backend.LeaseRecord) error {
		_, err := b.Sweep(ctx, backend.SweepOptions{Retention: -time.Hour, IncludeExpired: true})
		return err
	}},
	{"RenewBatch", func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		_, err := b.(backend.BatchRenewer).RenewBatch(ctx, []backend.LeaseRecord{record}, time.Hour)
		return err
	}},
	{"Free", func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		_, err := b.(backend.Looker).Free(ctx, []string{record.WorkID})
		return err
	}},
	{"AcquireRead", func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		_, _, err := b.(backend.AcquireReader).AcquireRead(ctx, record.WorkID, "next", time.Hour)
		return err
	}},
	{"CheckpointRelease", func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		return b.(backend.CheckpointReleaser).CheckpointRelease(ctx, record, []byte("new"), backend.ExitRetired)
	}},
	{"ReleaseAfter", func(ctx context.Context, b backend.Backend, record backend.LeaseRecord) error {
		return b.(backend.DelayedReleaser).ReleaseAfter(ctx, record, backend.ExitRetired, time.Hour)
	}},
}

type clockFunc func() time.Time

func (f clockFunc) Now() time.Time { return f() }

// panickyContext panics when the store looks at it.
type panickyContext struct{ context.Context }

func (panickyContext) Err() error { panic("context") }

func TestPanicLeavesNothingLocked(t *testing.T) {
	for _, c := range calls {
		for _, source := range []string{"clock", "context"} {
			t.Run(c.name+" with a panic from the "+source, func(t *testing.T) {
				broken := false
				b := memory.New(memory.WithClock(clockFunc(func() time.Time {
					if broken {
						panic("clock")
					}
					return epoch
				})))
				ctx := t.Context()
				mine := acquire(t, b, "work", "me", time.Hour)
				if err := b.Checkpoint(ctx, mine, []byte("state"), time.Hour); err != nil {
					t.Fatal(err)
				}

				func() {
					defer func() {
						if got := recover(); got != source {
							t.Errorf("recovered %v, want the panic from the %s", got, source)
						}
					}()
					if source == "context" {
						_ = c.call(panickyContext{ctx}, b, mine)
						return
					}
					broken = true
					_ = c.call(ctx, b, mine)
				}()
				broken = false

				unlocked := make(chan error, 1)
				go func() {
					_, err := b.Sweep(ctx, backend.SweepOptions{Retention: -time.Hour}) // locks every part of the store
					unlocked <- err
				}()
				select {
				case err := <-unlocked:
					if err != nil {
						t.Errorf("Sweep: %v", err)
					}
				case <-time.After(30 * time.Second):
					t.Fatal("a part of the store is still locked")
				}
				found, err := b.ReadCheckpoint(ctx, mine)
				if err != nil || string(found.State) != "state" {
					t.Errorf("after the panic, ReadCheckpoint = %+v, %v", found, err)
				}
				if err := b.Release(ctx, mine, backend.ExitFinished); err != nil {
					t.Errorf("after the panic, Release: %v", err)
				}
			})
		}
	}
}

func TestNilContext(t *testing.T) {
	var none context.Context
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			b := memory.New()
			mine := acquire(t, b, "work", "me", time.Hour)
			err := c.call(none, b, mine)
			if err == nil {
				t.Error("no error")
			}
			for _, sentinel := range []error{
				backend.ErrFenced, backend.ErrLeaseHeld, backend.ErrLeaseExpired, backend.ErrInvalidExitMode,
			} {
				if errors.Is(err, sentinel) {
					t.Errorf("%v matches %v", err, sentinel)
				}
			}
			found, err := b.ReadCheckpoint(t.Context(), mine)
			if err != nil || found.State != nil {
				t.Errorf("ReadCheckpoint = %+v, %v", found, err)
			}
		})
	}
}

// The context of a Sweep may end while it is under way: it reports what it deleted until then.
func TestSweepStopsHalfWay(t *testing.T) {
	const rows = 1000
	reads := 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := memory.New(memory.WithClock(clockFunc(func() time.Time {
		if reads++; reads == rows+10 { // one for each Acquire, then one for each part that is swept
			cancel()
		}
		return epoch
	})))
	for i := range rows {
		acquire(t, b, fmt.Sprint(i), "me", 0)
	}
	opts := backend.SweepOptions{Retention: -1, IncludeExpired: true}
	deleted, err := b.Sweep(ctx, opts)
	if !errors.Is(err, context.Canceled) || deleted <= 0 || deleted >= rows {
		t.Errorf("Sweep = %d, %v, want some of %d and %v", deleted, err, rows, context.Canceled)
	}
	wantSwept(t, b, opts, rows-deleted)
}

// The clock is read with the work ID's part of the store locked. State that changes at that moment and
// is stored as it was before has been copied before the lock was taken, however large it is.
func TestStateIsCopiedBeforeTheLock(t *testing.T) {
	state := bytes.Repeat([]byte("a"), 1<<20)
	locked := false
	b := memory.New(memory.WithClock(clockFunc(func() time.Time {
		if locked {
			clear(state)
		}
		return epoch
	})))
	mine := acquire(t, b, "work", "me", time.Hour)
	locked = true
	if err := b.Checkpoint(t.Context(), mine, state, time.Hour); err != nil {
		t.Fatal(err)
	}
	locked = false
	if state[0] != 0 {
		t.Fatal("the clock was not read")
	}
	found, err := b.ReadCheckpoint(t.Context(), mine)
	if err != nil || !bytes.Equal(found.State, bytes.Repeat([]byte("a"), 1<<20)) {
		t.Errorf("the stored state was copied after the lock was taken (error: %v)", err)
	}
}

// Each lease guards a plain variable, so that the race detector sees two tenures that overlap.
func TestManyGoroutines(t *testing.T) {
	const goroutines, workIDs, attempts = 4000, 4, 5
	b := memory.New()
	ctx := t.Context()
	var (
		guarded [workIDs]int
		tenures [workIDs]atomic.Int64
		swept   atomic.Int64
		done    sync.WaitGroup
	)
	for i := range goroutines {
		done.Go(func() {
			n := i % workIDs
			workID, holderID := fmt.Sprint("work ", n), fmt.Sprint("holder ", i)
			for range attempts {
				mine, err := b.Acquire(ctx, workID, holderID, time.Hour)
				if errors.Is(err, backend.ErrLeaseHeld) {
					runtime.Gosched()
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				guarded[n]++
				tenures[n].Add(1)
				err = errors.Join(
					b.Checkpoint(ctx, mine, []byte(holderID), time.Hour),
					b.Renew(ctx, mine, time.Hour),
				)
				found, readErr := b.ReadCheckpoint(ctx, mine)
				if string(found.State) != holderID {
					t.Errorf("%s reads the state %q", holderID, found.State)
				}
				switch i % 3 {
				case 0:
					err = errors.Join(err, b.Forget(ctx, mine))
				case 1:
					err = errors.Join(err, b.Release(ctx, mine, backend.ExitFinished))
				default:
					err = errors.Join(err, b.Release(ctx, mine, backend.ExitRetired))
				}
				deleted, sweepErr := b.Sweep(ctx, backend.SweepOptions{Retention: -1})
				swept.Add(deleted)
				if err = errors.Join(err, readErr, sweepErr); err != nil {
					t.Error(err)
				}
				return
			}
		})
	}
	done.Wait()
	for n := range workIDs {
		if got, want := guarded[n], int(tenures[n].Load()); got != want || want == 0 {
			t.Errorf("work %d was counted %d times in %d tenures", n, got, want)
		}
	}
	if swept.Load() == 0 {
		t.Error("nothing was swept")
	}
}
