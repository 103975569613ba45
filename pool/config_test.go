package pool_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/pool"
)

func TestConfigErrors(t *testing.T) {
	lease := leaseOf(t, newStore(), "a")
	fn := returning(nil, nil)
	for _, tc := range []struct {
		name  string
		lease worklease.Lease
		cfg   pool.Config
		fn    pool.WorkFn
		want  error
	}{
		{"no lease", nil, config(workID), fn, pool.ErrLeaseRequired},
		{"no function", lease, config(workID), nil, pool.ErrWorkFnRequired},
		{"no work IDs", lease, config(), fn, pool.ErrEmptyWorkIDs},
		{"an empty work ID", lease, config("b", "", "a"), fn, pool.ErrEmptyWorkID},
		{"a work ID twice", lease, config("b", "a", "b"), fn, pool.ErrDuplicateWorkID},
		{"waiting", lease, pool.Config{
			WorkIDs:        []string{workID},
			AcquireOptions: []worklease.AcquireOption{nil, worklease.WithWaitForLease()},
		}, fn, pool.ErrWithWaitForLeaseProhibited},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := pool.New(tc.lease, tc.cfg, tc.fn)
			if p != nil {
				t.Error("New returned a pool")
			}
			for _, want := range []error{tc.want, pool.ErrConfigInvalid, worklease.ErrConfigInvalid} {
				if !errors.Is(err, want) {
					t.Errorf("error = %v, does not match %v", err, want)
				}
			}
			for _, other := range []error{
				pool.ErrLeaseRequired, pool.ErrWorkFnRequired, pool.ErrEmptyWorkIDs, pool.ErrEmptyWorkID,
				pool.ErrDuplicateWorkID, pool.ErrWithWaitForLeaseProhibited,
			} {
				if other != tc.want && errors.Is(err, other) {
					t.Errorf("error = %v, matches %v", err, other)
				}
			}
		})
	}
}

func TestNewKeepsNoSliceOfTheConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		cfg := config("c", "a", "b")
		cfg.AcquireOptions = []worklease.AcquireOption{nil}
		cfg.RenewalOptions = []worklease.RenewalOption{nil}
		p := newPool(t, leaseOf(t, s, "a"), cfg, untilDone(nil, nil))
		if !slices.Equal(cfg.WorkIDs, []string{"c", "a", "b"}) {
			t.Errorf("New changed the caller's slice: %q", cfg.WorkIDs)
		}
		clear(cfg.WorkIDs)
		cfg.AcquireOptions[0] = worklease.WithWaitForLease()
		cfg.RenewalOptions[0] = worklease.WithRenewalInterval(time.Millisecond)
		holdAll(t, s, "b")
		time.AfterFunc(time.Minute, func() {
			if got, want := p.ActiveSlots(), []string{"a", "c"}; !slices.Equal(got, want) {
				t.Errorf("the active slots are %q, want %q", got, want)
			}
		})
		runFor(t, p, 2*time.Minute)
		if n := s.Renewals.Load(); n > 100 {
			t.Errorf("%d renewals: the option that was set after New works", n)
		}
		if n := s.Acquires.Load(); n > 3+int64(2*time.Minute/idle) { // 50, if it polled
			t.Errorf("%d attempts to acquire: the option that was set after New works", n)
		}
	})
}

func TestIntervalsHaveDefaults(t *testing.T) {
	for _, d := range []time.Duration{0, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			events := newRecorder()
			cfg := pool.Config{
				WorkIDs: []string{"fails", "held", "succeeds"}, Observer: events,
				IdleInterval: d, RerunInterval: d, BackoffInterval: d, CleanupTimeout: d,
			}
			holdAll(t, s, "held")
			p := newPool(t, leaseOf(t, s, "a"), cfg, func(_ context.Context, id string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
				if id == "fails" {
					return nil, errWork
				}
				return nil, nil
			})
			runFor(t, p, time.Minute-100*time.Millisecond)
			if n := len(events.of("fails")); n != 120 {
				t.Errorf("with %v work that fails made %d events, want two every second", d, n)
			}
			if n := len(events.of("succeeds")); n < 50 || n > 60 {
				t.Errorf("with %v work that succeeds was done %d times, want 50 to 60", d, n)
			}
			if n := s.Acquires.Load(); n < 60+50+51 || n > 60+60+60+1 {
				t.Errorf("with %v there were %d attempts to acquire", d, n)
			}
		})
	}
}

// A lease or an ID that is no good shows in the events, not in New.
func TestWorkIDThatAcquireRefusesBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := newRecorder()
		cfg := config("bad\x00id", workID)
		cfg.Observer = events
		runFor(t, newPool(t, leaseOf(t, newStore(), "a"), cfg, untilDone(nil, nil)), backoff-time.Second)
		if got := events.of("bad\x00id"); len(got) != 1 || got[0].name != "backoff" || got[0].err == nil {
			t.Errorf("the events of the bad ID are %v", got)
		}
		events.wantEvents(t, "acquired")
	})
}

func TestIntervalsOfAnyLength(t *testing.T) {
	const forever = time.Duration(1<<63 - 1)
	for _, d := range []time.Duration{1, forever} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			all := ids(10)
			holdAll(t, s, all[:5]...)
			ctx, cancel := context.WithCancel(t.Context())
			cfg := pool.Config{WorkIDs: all, IdleInterval: d, RerunInterval: d, BackoffInterval: d}
			p := newPool(t, leaseOf(t, s, "a"), cfg, func(_ context.Context, id string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
				if id == all[5] {
					return nil, errWork
				}
				return nil, nil
			})
			defer cancel()
			time.AfterFunc(min(d, time.Hour)*100, cancel)
			if err := p.Run(ctx); err != nil {
				t.Errorf("Run returned %v", err)
			}
		})
	}
}

func TestZeroPool(t *testing.T) {
	for _, p := range []*pool.Pool{nil, new(pool.Pool)} {
		if err := p.Run(t.Context()); !errors.Is(err, pool.ErrLeaseRequired) {
			t.Errorf("Run returned %v", err)
		}
		if got := p.ActiveSlots(); got == nil || len(got) != 0 {
			t.Errorf("ActiveSlots returned %#v", got)
		}
	}
}

func TestNilContextIsAnError(t *testing.T) {
	s := newStore()
	p := newPool(t, leaseOf(t, s, "a"), config(workID), returning(nil, worklease.ErrRetire))
	var none context.Context
	if err := p.Run(none); err == nil {
		t.Error("no error")
	}
	if n := s.Acquires.Load(); n != 0 {
		t.Errorf("there were %d attempts to acquire", n)
	}
	if err := p.Run(t.Context()); err != nil {
		t.Errorf("the next Run returned %v", err)
	}
}
