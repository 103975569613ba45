package memory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/internal/faulty"
)

var epoch = faulty.Epoch

func newClocked() (*memory.Backend, *faulty.Clock) {
	clock := new(faulty.Clock)
	return memory.New(memory.WithClock(clock)), clock
}

func acquire(t *testing.T, b backend.Backend, workID, holderID string, ttl time.Duration) backend.LeaseRecord {
	t.Helper()
	record, err := b.Acquire(t.Context(), workID, holderID, ttl)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return record
}

func wantError(t *testing.T, op string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", op, err, want)
	}
}

func wantSwept(t *testing.T, b backend.Backend, opts backend.SweepOptions, want int64) {
	t.Helper()
	if deleted, err := b.Sweep(t.Context(), opts); err != nil || deleted != want {
		t.Errorf("Sweep(%+v) = %d, %v, want %d", opts, deleted, err, want)
	}
}

func TestExpiryInstant(t *testing.T) {
	b, clock := newClocked()
	ctx := t.Context()
	mine := acquire(t, b, "work", "me", time.Minute)
	if want := epoch.Add(time.Minute); !mine.ExpiresAt.Equal(want) {
		t.Errorf("ExpiresAt is %v, want %v", mine.ExpiresAt, want)
	}

	clock.Set(time.Minute - 1)
	_, err := b.Acquire(ctx, "work", "next", time.Minute)
	held, ok := errors.AsType[*backend.HeldError](err)
	if !ok || held.WorkID != "work" || held.HolderID != "me" || !held.ExpiresAt.Equal(mine.ExpiresAt) {
		t.Errorf("an instant before the expiry, Acquire: %v", err)
	}
	wantError(t, "Renew an instant before the expiry", b.Renew(ctx, mine, 1), nil)

	clock.Set(time.Minute)
	wantError(t, "Renew at the expiry", b.Renew(ctx, mine, time.Minute), backend.ErrLeaseExpired)
	wantError(t, "Release at the expiry", b.Release(ctx, mine, backend.ExitFinished), backend.ErrLeaseExpired)
	next := acquire(t, b, "work", "next", time.Minute)
	found, err := b.ReadCheckpoint(ctx, next)
	if err != nil || found.PrevExit != backend.ExitExpired || found.PrevHolderID != "me" {
		t.Errorf("ReadCheckpoint = %+v, %v", found, err)
	}
}

func TestSweepBoundary(t *testing.T) {
	const retention = time.Hour
	for _, c := range []struct {
		name  string
		setUp func(ctx context.Context, b backend.Backend, clock *faulty.Clock, mine backend.LeaseRecord) error
		last  time.Duration // the row's last update, from epoch
	}{
		{"a retired row, from its release", func(ctx context.Context, b backend.Backend, clock *faulty.Clock, mine backend.LeaseRecord) error {
			clock.Set(5 * time.Second)
			return b.Release(ctx, mine, backend.ExitRetired)
		}, 5 * time.Second},
		{"a lapsed lease, from its expiry", func(context.Context, backend.Backend, *faulty.Clock, backend.LeaseRecord) error {
			return nil
		}, 10 * time.Second},
		{"a renewed lease that lapsed, from its expiry", func(ctx context.Context, b backend.Backend, clock *faulty.Clock, mine backend.LeaseRecord) error {
			clock.Set(5 * time.Second)
			return b.Renew(ctx, mine, 20*time.Second)
		}, 25 * time.Second},
		{"a lease that a Renew ended, from its acquisition", func(ctx context.Context, b backend.Backend, clock *faulty.Clock, mine backend.LeaseRecord) error {
			clock.Set(5 * time.Second)
			return b.Renew(ctx, mine, -10*time.Second)
		}, 0},
		{"a lease that a Checkpoint ended, from the Checkpoint", func(ctx context.Context, b backend.Backend, clock *faulty.Clock, mine backend.LeaseRecord) error {
			clock.Set(5 * time.Second)
			return b.Checkpoint(ctx, mine, nil, -10*time.Second)
		}, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, clock := newClocked()
			if err := c.setUp(t.Context(), b, clock, acquire(t, b, "work", "me", 10*time.Second)); err != nil {
				t.Fatal(err)
			}
			opts := backend.SweepOptions{Retention: retention, IncludeExpired: true}
			clock.Set(c.last + retention)
			wantSwept(t, b, opts, 0)
			clock.Set(c.last + retention + 1)
			wantSwept(t, b, opts, 1)
		})
	}
}

func TestClockSetBackAfterRelease(t *testing.T) {
	b, clock := newClocked()
	ctx := t.Context()
	mine := acquire(t, b, "work", "me", time.Minute)
	clock.Set(30 * time.Second)
	wantError(t, "Release", b.Release(ctx, mine, backend.ExitRetired), nil)

	clock.Set(-time.Hour)
	wantError(t, "Renew", b.Renew(ctx, mine, time.Minute), backend.ErrLeaseExpired)
	wantError(t, "Checkpoint", b.Checkpoint(ctx, mine, []byte("late"), time.Minute), backend.ErrLeaseExpired)
	wantError(t, "Release", b.Release(ctx, mine, backend.ExitFinished), backend.ErrLeaseExpired)
	wantSwept(t, b, backend.SweepOptions{Retention: 0, IncludeExpired: true}, 0)

	clock.Set(30 * time.Second)
	next := acquire(t, b, "work", "next", time.Minute)
	found, err := b.ReadCheckpoint(ctx, next)
	if err != nil || found.State != nil || found.PrevExit != backend.ExitRetired || found.PrevHolderID != "me" {
		t.Errorf("ReadCheckpoint = %+v, %v", found, err)
	}
}

func TestNilOptions(t *testing.T) {
	clock := new(faulty.Clock)
	for name, c := range map[string]struct {
		b    *memory.Backend
		want time.Time // zero: about now
	}{
		"no clock":        {memory.New(nil, memory.WithClock(nil)), time.Time{}},
		"a clock and nil": {memory.New(memory.WithClock(clock), nil, memory.WithClock(nil)), epoch},
		"the zero value":  {new(memory.Backend), time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			before := time.Now()
			record := acquire(t, c.b, "work", "me", 0)
			switch {
			case !c.want.IsZero():
				if !record.ExpiresAt.Equal(c.want) {
					t.Errorf("ExpiresAt is %v, want %v", record.ExpiresAt, c.want)
				}
			case record.ExpiresAt.Before(before.Round(0)) || record.ExpiresAt.After(time.Now().Round(0)):
				t.Errorf("ExpiresAt is %v, want the time of the call, %v", record.ExpiresAt, before)
			}
		})
	}
}
