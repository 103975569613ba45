package worklease_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
)

// combining is what the life cycle asks of a Lease beyond the interface.
type combining interface {
	worklease.Lease
	AcquireRead(ctx context.Context, workID string, opts ...worklease.AcquireOption) (worklease.Token, worklease.Checkpoint, error)
	CheckpointRelease(ctx context.Context, token worklease.Token, state []byte, mode worklease.ExitMode) error
}

func succeeded(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCombinedCallsAreTwoEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty.Combining{Store: newStore()}
		s.OnAcquireRead = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
			time.Sleep(time.Second)
			return s.Backend.(backend.AcquireReader).AcquireRead(ctx, workID, holderID, ttl)
		}
		s.OnCheckpointRelease = func(ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
			time.Sleep(2 * time.Second)
			return s.Backend.(backend.CheckpointReleaser).CheckpointRelease(ctx, record, state, mode)
		}
		seen := &recorder{}
		ctx := t.Context()
		lease := newObserved(t, s, "a", time.Hour, seen).(combining)
		first, _, err := lease.AcquireRead(ctx, "w")
		succeeded(t, err)
		_, _, held := lease.AcquireRead(ctx, "w")
		mustMatch(t, held, worklease.ErrLeaseHeld)
		succeeded(t, lease.CheckpointRelease(ctx, first, []byte("12345"), worklease.ExitFinished))
		expired := lease.CheckpointRelease(ctx, first, nil, worklease.ExitAbandoned)
		mustMatch(t, expired, worklease.ErrLeaseExpired)
		second, found, err := lease.AcquireRead(ctx, "w")
		succeeded(t, err)
		if string(found.State) != "12345" || found.PrevExit != worklease.ExitFinished || found.PrevHolderID != "a" {
			t.Errorf("found %+v", found)
		}
		fenced := lease.CheckpointRelease(ctx, first, nil, worklease.ExitAbandoned)
		mustMatch(t, fenced, worklease.ErrFenced)

		want := []any{
			worklease.AcquireEvent{WorkID: "w", Token: first, Duration: time.Second},
			worklease.ReadCheckpointEvent{Token: first, Duration: time.Second},
			worklease.AcquireEvent{WorkID: "w", Duration: time.Second, Err: held},
			worklease.CheckpointEvent{Token: first, Size: 5, Duration: 2 * time.Second},
			worklease.ReleaseEvent{Token: first, Mode: worklease.ExitFinished, Duration: 2 * time.Second},
			worklease.CheckpointEvent{Token: first, Duration: 2 * time.Second, Err: expired},
			worklease.AcquireEvent{WorkID: "w", Token: second, Duration: time.Second},
			worklease.ReadCheckpointEvent{Token: second, PrevExit: worklease.ExitFinished, PrevHolderID: "a", Size: 5, Duration: time.Second},
			worklease.CheckpointEvent{Token: first, Duration: 2 * time.Second, Err: fenced},
			worklease.FencedEvent{Token: first, Operation: worklease.OperationCheckpoint},
		}
		if got := seen.all(); !reflect.DeepEqual(got, want) {
			t.Errorf("events\n%v\nwant\n%v", got, want)
		}
	})
}

// What the store cannot do has not happened: nobody is told, and the lease is as sure as before.
func TestCombinedCallsThatTheStoreCannotMake(t *testing.T) {
	declines := &faulty.Combining{Store: newStore()}
	declines.OnAcquireRead = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
		return backend.LeaseRecord{}, backend.Checkpoint{}, errors.ErrUnsupported
	}
	declines.OnCheckpointRelease = func(context.Context, backend.LeaseRecord, []byte, backend.ExitMode) error {
		return errors.ErrUnsupported
	}
	for name, store := range map[string]backend.Backend{"lacks them": newStore(), "declines": declines} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := &recorder{}
				lease := newObserved(t, store, "a", time.Hour, seen).(combining)
				_, _, err := lease.AcquireRead(t.Context(), "w", worklease.WithWaitForLease())
				mustMatch(t, err, errors.ErrUnsupported)
				if got := seen.all(); len(got) != 0 {
					t.Errorf("events %v", got)
				}
				token := acquire(t, lease, "w")
				renewCtx, stop := lease.StartRenewal(t.Context(), token)
				defer stop()
				mustMatch(t, lease.CheckpointRelease(t.Context(), token, nil, worklease.ExitFinished), errors.ErrUnsupported)
				windowOf(t, renewCtx)
				mustMatch(t, lease.CheckpointRelease(t.Context(), token, nil, worklease.ExitExpired), worklease.ErrInvalidExitMode)
				if got := seen.all(); len(got) != 1 {
					t.Errorf("events %v", got)
				}
				succeeded(t, lease.Release(t.Context(), token, worklease.ExitFinished))
			})
		})
	}
}

func TestCombinedReleaseEndsTheRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty.Combining{Store: newStore()}
		lease := newObserved(t, s, "a", time.Hour, nil).(combining)
		token, _, err := lease.AcquireRead(t.Context(), "w")
		succeeded(t, err)
		renewCtx, stop := lease.StartRenewal(t.Context(), token)
		defer stop()
		s.OnCheckpointRelease = func(ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
			if _, ok := worklease.LeaseWindow(renewCtx); ok {
				t.Error("the window vouches for a lease that is being released")
			}
			return s.Backend.(backend.CheckpointReleaser).CheckpointRelease(ctx, record, state, mode)
		}
		succeeded(t, lease.CheckpointRelease(t.Context(), token, []byte("done"), worklease.ExitFinished))
		mustEnd(t, renewCtx, time.Now(), worklease.ErrLeaseWindowExhausted)
	})
}

// An answer that came too late to be used is given back, whatever it brought along.
func TestLateAcquireReadIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty.Combining{Store: newStore()}
		s.OnAcquireRead = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
			time.Sleep(ttl)
			return s.Backend.(backend.AcquireReader).AcquireRead(context.WithoutCancel(ctx), workID, holderID, ttl)
		}
		seen := &recorder{}
		lease := newObserved(t, s, "a", time.Minute, seen).(combining)
		token, _, err := lease.AcquireRead(t.Context(), "w")
		mustMatch(t, err, worklease.ErrLeaseWindowExhausted)
		if token != (worklease.Token{}) || s.Releases.Load() != 1 || len(eventsOf[worklease.ReadCheckpointEvent](seen)) != 0 {
			t.Errorf("token %v, %d releases, events %v", token, s.Releases.Load(), seen.all())
		}
	})
}
