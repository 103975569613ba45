package worker_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/worker"
)

// recovered runs the work and returns what it panicked with.
func recovered(t *testing.T, runner *worker.Runner) (value any) {
	t.Helper()
	defer func() { value = recover() }()
	ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
	defer cancel()
	err := runner.Run(ctx, workID)
	t.Errorf("Run returned %v", err)
	return nil
}

func TestPanicGoesOnToTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		value := new(int)
		var workCtx context.Context
		runner, s := newHolder(t, func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			workCtx = ctx
			time.Sleep(3 * ttl)
			panic(value)
		})
		if got := recovered(t, runner); got != value {
			t.Errorf("recovered %v, want the very value", got)
		}
		if workCtx.Err() == nil {
			t.Error("the context of work that has panicked goes on")
		}
		if n := s.Checkpoints.Load() + s.Releases.Load(); n != 0 {
			t.Errorf("the store got %d calls after the panic", n)
		}
		renewals := s.Renewals.Load()
		time.Sleep(ttl)
		wantFound(t, inherit(t, s), "", worklease.ExitExpired, "a")
		wantRenewalOver(t, s)
		if n := s.Renewals.Load(); n != renewals {
			t.Errorf("renewals rose from %d to %d after the panic", renewals, n)
		}
	})
}

func TestGoexitEndsTheTenureLikeAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner, s := newHolder(t, func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) {
			time.Sleep(3 * ttl)
			runtime.Goexit()
			return nil, nil
		})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			err := runner.Run(t.Context(), workID)
			t.Errorf("Run returned %v", err)
		}()
		<-ended
		if n := s.Checkpoints.Load() + s.Releases.Load(); n != 0 {
			t.Errorf("the store got %d calls after the end", n)
		}
		time.Sleep(ttl)
		wantFound(t, inherit(t, s), "", worklease.ExitExpired, "a")
		wantRenewalOver(t, s)
	})
}

// The final checkpoint and the release are made in goroutines of their own: a panic there is to reach a
// recover around Run, too.
func TestPanicOfTheStoreReachesTheCaller(t *testing.T) {
	value := new(int)
	for _, tc := range []struct {
		name string
		set  func(s *faulty.Store)
	}{
		{"in the final checkpoint", func(s *faulty.Store) {
			s.OnCheckpoint = func(context.Context, backend.LeaseRecord, []byte, time.Duration) error { panic(value) }
		}},
		{"in the release", func(s *faulty.Store) {
			s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error { panic(value) }
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runner, s := newHolder(t, returning([]byte("new"), nil))
				tc.set(s)
				if got := recovered(t, runner); got != value {
					t.Errorf("recovered %v, want the very value", got)
				}
				time.Sleep(ttl)
				if found := inherit(t, s); found.PrevExit != worklease.ExitExpired {
					t.Errorf("the successor finds %v", found.PrevExit)
				}
				wantRenewalOver(t, s)
			})
		})
	}
}

func TestEverySuccessorOfAPanicSeesAnExpiredLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		var found []worklease.Checkpoint
		for _, holder := range []string{"first", "second", "third"} {
			runner := newRunner(t, worker.RunnerConfig{
				Lease: leaseOf(t, s, holder),
				WorkFn: func(_ context.Context, _ worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
					found = append(found, prior)
					panic("one bad item")
				},
				AcquireOptions: []worklease.AcquireOption{worklease.WithWaitForLease()},
			})
			recovered(t, runner)
		}
		if len(found) != 3 {
			t.Fatalf("%d holders got to work", len(found))
		}
		wantFound(t, found[0], "", worklease.ExitNone, "")
		wantFound(t, found[1], "", worklease.ExitExpired, "first")
		wantFound(t, found[2], "", worklease.ExitExpired, "second")
	})
}
