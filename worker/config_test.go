package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/worker"
)

func TestNewRunnerNamesWhatIsMissing(t *testing.T) {
	lease := leaseOf(t, newStore(), "a")
	for _, tc := range []struct {
		name string
		cfg  worker.RunnerConfig
		want error
	}{
		{"everything", worker.RunnerConfig{}, worker.ErrLeaseRequired},
		{"the lease", worker.RunnerConfig{WorkFn: returning(nil, nil)}, worker.ErrLeaseRequired},
		{"the work", worker.RunnerConfig{Lease: lease}, worker.ErrWorkFnRequired},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runner, err := worker.NewRunner(tc.cfg)
			if runner != nil || !errors.Is(err, tc.want) || !errors.Is(err, worklease.ErrConfigInvalid) {
				t.Errorf("NewRunner = %v, %v, want an error matching %v and ErrConfigInvalid", runner, err, tc.want)
			}
		})
	}
	if errors.Is(worker.ErrLeaseRequired, worker.ErrWorkFnRequired) || errors.Is(worker.ErrWorkFnRequired, worker.ErrLeaseRequired) {
		t.Error("the config errors match each other")
	}
}

func TestRunnerThatIsNoneReturnsAConfigError(t *testing.T) {
	var none *worker.Runner
	for name, runner := range map[string]*worker.Runner{"nil": none, "zero": new(worker.Runner)} {
		err := runner.Run(t.Context(), workID)
		if !errors.Is(err, worker.ErrLeaseRequired) || !errors.Is(err, worklease.ErrConfigInvalid) {
			t.Errorf("a %s Runner returns %v", name, err)
		}
	}
}

func TestRunnerKeepsNoSliceOfItsConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		acquire := []worklease.AcquireOption{worklease.WithPollInterval(time.Second)}
		renewal := []worklease.RenewalOption{worklease.WithRenewalInterval(time.Second)}
		runner := newRunner(t, worker.RunnerConfig{
			Lease: leaseOf(t, s, "a"), WorkFn: lasting(ttl, nil, nil), AcquireOptions: acquire, RenewalOptions: renewal,
		})
		acquire[0] = worklease.WithWaitForLease()
		renewal[0] = worklease.WithRenewalInterval(ttl / 2)
		wantErr(t, runner.Run(t.Context(), workID))
		if n := s.Renewals.Load(); n < 9 {
			t.Errorf("renewed %d times, as the changed options say", n)
		}
		if _, err := s.Backend.Acquire(t.Context(), workID, "rival", time.Hour); err != nil {
			t.Fatal(err)
		}
		wantErr(t, runner.Run(t.Context(), workID), worklease.ErrLeaseHeld)
	})
}

func TestOneRunnerServesManyWorkIDsAtATime(t *testing.T) {
	const works, tenures = 64, 3
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		lease := leaseOf(t, s, "a")
		var active, most atomic.Int64
		runner := newRunner(t, worker.RunnerConfig{
			Lease: lease,
			WorkFn: func(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
				most.Store(max(most.Load(), active.Add(1)))
				defer active.Add(-1)
				var n int
				if prior.State != nil {
					var id string
					if _, err := fmt.Sscan(string(prior.State), &id, &n); err != nil || id != token.WorkID() {
						return nil, fmt.Errorf("%s found %q: %w", token.WorkID(), prior.State, err)
					}
				}
				time.Sleep(2 * ttl)
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				state := fmt.Appendf(nil, "%s %d", token.WorkID(), n+1)
				return state, lease.Checkpoint(ctx, token, state)
			},
		})
		ended := make(chan error, works)
		for i := range works {
			go func() {
				var errs []error
				for range tenures {
					errs = append(errs, runner.Run(t.Context(), fmt.Sprintf("work-%d", i)))
				}
				ended <- errors.Join(errs...)
			}()
		}
		for range works {
			wantErr(t, <-ended)
		}
		if most.Load() < works {
			t.Errorf("%d ran at a time, want %d", most.Load(), works)
		}
		for i := range works {
			id := fmt.Sprintf("work-%d", i)
			record, err := s.Backend.Acquire(t.Context(), id, "successor", ttl)
			wantErr(t, err)
			found, err := s.Backend.ReadCheckpoint(t.Context(), record)
			wantErr(t, err)
			wantFound(t, found, fmt.Sprintf("%s %d", id, tenures), worklease.ExitFinished, "a")
		}
	})
}

func TestOneWorkIDIsWorkedOnByOneRunAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		var active, ran atomic.Int64
		runner := newRunner(t, worker.RunnerConfig{
			Lease: leaseOf(t, s, "a"),
			WorkFn: func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) {
				if active.Add(1) != 1 {
					t.Error("two at a time")
				}
				defer active.Add(-1)
				ran.Add(1)
				time.Sleep(ttl)
				return nil, nil
			},
			AcquireOptions: []worklease.AcquireOption{worklease.WithWaitForLease()},
		})
		ended := make(chan error)
		for range 8 {
			go func() { ended <- runner.Run(t.Context(), workID) }()
		}
		for range 8 {
			wantErr(t, <-ended)
		}
		if ran.Load() != 8 {
			t.Errorf("%d runs got to work", ran.Load())
		}
	})
}
