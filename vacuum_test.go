package worklease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
)

// sweeps is a VacuumObserver that keeps what it is told.
type sweeps struct{ events []worklease.SweepEvent }

func (s *sweeps) OnSweep(_ context.Context, e worklease.SweepEvent) { s.events = append(s.events, e) }

// sweepStore answers a Sweep after a second.
type sweepStore struct {
	backend.Backend
	deleted int64
	err     error
}

func (s sweepStore) Sweep(context.Context, backend.SweepOptions) (int64, error) {
	time.Sleep(time.Second)
	return s.deleted, s.err
}

func TestVacuumDeletesWhatIsOverAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		lease := newLease(t, b, "a", time.Hour)
		for workID, mode := range map[string]worklease.ExitMode{
			"retired": worklease.ExitRetired, "finished": worklease.ExitFinished, "abandoned": worklease.ExitAbandoned,
		} {
			if err := lease.Release(t.Context(), acquire(t, lease, workID), mode); err != nil {
				t.Fatal(err)
			}
		}
		acquire(t, lease, "lapsed")
		time.Sleep(48 * time.Hour)
		held := acquire(t, lease, "held")

		vacuum, err := worklease.NewVacuum(b, worklease.VacuumConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			opts worklease.SweepOptions
			want int64
		}{
			{worklease.SweepOptions{Retention: 49 * time.Hour}, 0},
			{worklease.SweepOptions{Retention: 24 * time.Hour}, 1},
			{worklease.SweepOptions{Retention: 24 * time.Hour, IncludeExpired: true}, 1},
			{worklease.SweepOptions{Retention: 1, IncludeExpired: true}, 0},
		} {
			if n, err := vacuum.Sweep(t.Context(), step.opts); n != step.want || err != nil {
				t.Errorf("%+v deleted %d, %v, want %d", step.opts, n, err, step.want)
			}
		}
		if err := lease.Renew(t.Context(), held); err != nil {
			t.Errorf("the held lease: %v", err)
		}
	})
}

func TestVacuumTellsItsObserverOfEverySweepThatReachedTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &sweeps{}
		vacuum, err := worklease.NewVacuum(sweepStore{deleted: 7, err: errStore}, worklease.VacuumConfig{Observer: seen})
		if err != nil {
			t.Fatal(err)
		}
		opts := worklease.SweepOptions{Retention: time.Hour, IncludeExpired: true}
		n, err := vacuum.Sweep(t.Context(), opts)
		if n != 7 {
			t.Errorf("deleted %d beside the error, want 7", n)
		}
		mustMatch(t, err, errStore)
		for _, bad := range []time.Duration{0, -time.Hour} {
			_, err := vacuum.Sweep(t.Context(), worklease.SweepOptions{Retention: bad})
			mustMatch(t, err, worklease.ErrRetentionRequired, worklease.ErrConfigInvalid)
		}
		var none context.Context
		if _, err := vacuum.Sweep(none, opts); err == nil {
			t.Error("a sweep without a context")
		}
		want := worklease.SweepEvent{Options: opts, Deleted: 7, Duration: time.Second, Err: err}
		if len(seen.events) != 1 || seen.events[0] != want {
			t.Errorf("the observer saw %+v, want %+v", seen.events, want)
		}
	})
}

func TestVacuumNeedsABackend(t *testing.T) {
	vacuum, err := worklease.NewVacuum(nil, worklease.VacuumConfig{Observer: worklease.NoopVacuumObserver{}})
	if vacuum != nil {
		t.Error("there is a Vacuum beside the error")
	}
	mustMatch(t, err, worklease.ErrNilBackend, worklease.ErrConfigInvalid)
	for _, v := range []*worklease.Vacuum{nil, {}} {
		_, err := v.Sweep(t.Context(), worklease.SweepOptions{Retention: time.Hour})
		mustMatch(t, err, worklease.ErrNilBackend)
	}
	worklease.NoopVacuumObserver{}.OnSweep(t.Context(), worklease.SweepEvent{})
}
