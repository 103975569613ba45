package worklease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/internal/pause"
)

func freeOf(t *testing.T, l worklease.Lease) func(context.Context, []string) ([]string, error) {
	t.Helper()
	free := pause.Looks(l)
	if free == nil {
		t.Fatal("the Lease cannot be asked")
	}
	return free
}

func TestFreeAsksForManyInFewCalls(t *testing.T) {
	s := &faulty.Looking{Store: newStore()}
	var all, want []string
	for i := range 25_000 {
		id := fmt.Sprint(i)
		all = append(all, id)
		if i%1000 == 0 {
			want = append(want, id)
		} else {
			heldFor(t, s.Store, id, time.Hour)
		}
	}
	got, err := freeOf(t, newLease(t, s, "a", time.Minute))(t.Context(), all)
	succeeded(t, err)
	if !slices.Equal(got, want) || s.Looks.Load() != 3 || s.Most.Load() != 10_000 {
		t.Errorf("%d are free, said %d calls of up to %d", len(got), s.Looks.Load(), s.Most.Load())
	}
}

// The store is not asked for what it could not keep, which an Acquire says.
func TestFreeOfWhatNoStoreCanKeep(t *testing.T) {
	s := &faulty.Looking{Store: newStore()}
	s.OnFree = func(_ context.Context, workIDs []string) ([]string, error) {
		if !slices.Equal(workIDs, []string{"w"}) {
			t.Errorf("the store is asked for %q", workIDs)
		}
		return nil, nil
	}
	bad := []string{"", "a\x00b", "\xff"}
	got, err := freeOf(t, newLease(t, s, "a", time.Minute))(t.Context(), append([]string{"w"}, bad...))
	succeeded(t, err)
	if !slices.Equal(got, bad) {
		t.Errorf("%q are free, want %q", got, bad)
	}
}

func TestFreeFails(t *testing.T) {
	for _, tc := range []struct {
		name  string
		store func(*faulty.Looking) backend.Backend
		free  func(context.Context, []string) ([]string, error)
		want  error // nil: any
		took  time.Duration
	}{
		{name: "the store cannot tell", store: func(s *faulty.Looking) backend.Backend { return s.Store }, want: errors.ErrUnsupported},
		{
			name: "a wrapper's store cannot tell", want: errors.ErrUnsupported,
			free: func(context.Context, []string) ([]string, error) { return nil, errors.ErrUnsupported },
		},
		{name: "fails", free: func(context.Context, []string) ([]string, error) { return nil, errStore }, want: errStore},
		{name: "panics", free: func(context.Context, []string) ([]string, error) { panic(errStore) }},
		{
			name: "hangs", want: context.DeadlineExceeded, took: time.Minute,
			free: func(ctx context.Context, _ []string) ([]string, error) { <-ctx.Done(); return nil, ctx.Err() },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &faulty.Looking{Store: newStore(), OnFree: tc.free}
				var store backend.Backend = s
				if tc.store != nil {
					store = tc.store(s)
				}
				start := time.Now()
				got, err := freeOf(t, newLease(t, store, "a", time.Minute))(t.Context(), []string{"w"})
				if err == nil || tc.want != nil && !errors.Is(err, tc.want) || got != nil {
					t.Errorf("it returned %q, %v", got, err)
				}
				if took := time.Since(start); took != tc.took {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A store that tells nobody has none listen.
func TestWatchSaysWhetherAnythingIsTold(t *testing.T) {
	silent, telling := &faulty.Looking{Store: newStore()}, &wakeStore{Store: newStore()}
	deaf := &wakeStore{Store: newStore(), deaf: true}
	for _, tc := range []struct {
		lease worklease.Lease
		want  bool
	}{
		{newLease(t, silent, "a", time.Minute), false},
		{newLease(t, deaf, "a", time.Minute), false},
		{newLease(t, telling, "a", time.Minute), true},
		{struct{ worklease.Lease }{newLease(t, telling, "a", time.Minute)}, false},
	} {
		sleep, stop, told := pause.Watch(tc.lease, "w")
		if told != tc.want {
			t.Errorf("told: %v, want %v", told, tc.want)
		}
		succeeded(t, sleep(t.Context(), time.Millisecond))
		stop()
	}
	if telling.wakes.Load() != 1 || telling.stops.Load() != 1 {
		t.Errorf("%d wake-ups were asked for, %d ended", telling.wakes.Load(), telling.stops.Load())
	}
	if deaf.stops.Load() != 1 {
		t.Errorf("what never wakes was ended %d times", deaf.stops.Load())
	}
}
