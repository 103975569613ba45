package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/internal/tenuretest"
	"github.com/aetomala/worklease/worker"
)

const (
	ttl    = tenuretest.TTL
	workID = "report"
)

var (
	errStore, errWork, errShutdown = tenuretest.ErrStore, tenuretest.ErrWork, tenuretest.ErrShutdown

	newStore = tenuretest.NewStore
	leaseOf  = tenuretest.LeaseOf
	wantErr  = tenuretest.WantErr
	recordOf = tenuretest.RecordOf
	awaitEnd = tenuretest.AwaitEnd
)

func newLease(t *testing.T, b backend.Backend, cfg worklease.Config) worklease.Lease {
	t.Helper()
	lease, err := worklease.New(b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func newRunner(t *testing.T, cfg worker.RunnerConfig) *worker.Runner {
	t.Helper()
	runner, err := worker.NewRunner(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return runner
}

// newHolder returns a runner of work as holder "a" with the usual TTL, and a store for its faults.
func newHolder(t *testing.T, work worker.WorkFn) (*worker.Runner, *faulty.Store) {
	t.Helper()
	s := newStore()
	return newRunner(t, worker.RunnerConfig{Lease: leaseOf(t, s, "a"), WorkFn: work}), s
}

// inherit acquires the work at once, past any fault, and returns what a successor finds.
func inherit(t *testing.T, s *faulty.Store) backend.Checkpoint {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	record, err := s.Backend.Acquire(ctx, workID, "successor", ttl)
	if err != nil {
		t.Fatalf("the successor does not get the lease at once: %v", err)
	}
	found, err := s.Backend.ReadCheckpoint(ctx, record)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantFound checks what a successor of holderID finds.
func wantFound(t *testing.T, found backend.Checkpoint, state string, exit worklease.ExitMode, holderID string) {
	t.Helper()
	if string(found.State) != state || found.PrevExit != exit || found.PrevHolderID != holderID {
		t.Errorf("the successor finds %q, %v by %q, want %q, %v by %q",
			found.State, found.PrevExit, found.PrevHolderID, state, exit, holderID)
	}
}

// wantRenewalOver lets a few TTLs pass, and checks that the store saw no renewal in them.
func wantRenewalOver(t *testing.T, s *faulty.Store) {
	t.Helper()
	before := s.Renewals.Load()
	time.Sleep(5 * ttl)
	if n := s.Renewals.Load() - before; n != 0 {
		t.Errorf("renewal goes on: %d calls", n)
	}
}

func returning(state []byte, err error) worker.WorkFn {
	return func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) { return state, err }
}

// untilDone works until it is told to stop.
func untilDone(state []byte, err error) worker.WorkFn {
	return func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
		awaitEnd(ctx)
		return state, err
	}
}

func neverCalled(t *testing.T) worker.WorkFn {
	return func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) {
		t.Error("the work was begun")
		return nil, nil
	}
}

func renewAnswers(err error) func(*faulty.Store) {
	return func(s *faulty.Store) {
		s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error { return err }
	}
}

func saveAnswers(err error) func(*faulty.Store) {
	return func(s *faulty.Store) {
		s.OnCheckpoint = func(context.Context, backend.LeaseRecord, []byte, time.Duration) error { return err }
	}
}

func releaseAnswers(err error) func(*faulty.Store) {
	return func(s *faulty.Store) {
		s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error { return err }
	}
}
