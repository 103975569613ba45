package schedule_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/schedule"
)

var (
	errStore = errors.New("store: connection reset")
	errWork  = errors.New("work failed")
)

const name = "nightly-report"

func nodeOf(t *testing.T, b backend.Backend, holderID string) *schedule.Scheduler {
	t.Helper()
	return nodeWith(t, b, schedule.Config{HolderID: holderID})
}

func nodeWith(t *testing.T, b backend.Backend, cfg schedule.Config) *schedule.Scheduler {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := schedule.New(b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// faultyStore is a memory store some methods of which fail. It has delayed releases, as the memory store.
type faultyStore struct {
	*memory.Backend
	mu                      sync.Mutex // guards what follows
	acquire, renew, release error
	checkpoints             int // how many succeed; negative: all
	renewed                 int
}

func newFaulty() *faultyStore { return &faultyStore{Backend: memory.New(), checkpoints: -1} }

// set changes what fails, while calls are made.
func (f *faultyStore) set(change func(*faultyStore)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faultyStore) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.acquire != nil {
		return backend.LeaseRecord{}, f.acquire
	}
	return f.Backend.Acquire(ctx, workID, holderID, ttl)
}

func (f *faultyStore) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed++
	if f.renew != nil {
		return f.renew
	}
	return f.Backend.Renew(ctx, record, ttl)
}

func (f *faultyStore) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.checkpoints == 0 {
		return errStore
	}
	f.checkpoints--
	return f.Backend.Checkpoint(ctx, record, state, ttl)
}

func (f *faultyStore) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.release != nil {
		return f.release
	}
	return f.Backend.Release(ctx, record, mode)
}

func (f *faultyStore) ReleaseAfter(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode, delay time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.release != nil {
		return f.release
	}
	return f.Backend.ReleaseAfter(ctx, record, mode, delay)
}

// AcquireRead is not had: each call is seen.
func (f *faultyStore) AcquireRead(context.Context, string, string, time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
	return backend.LeaseRecord{}, backend.Checkpoint{}, errors.ErrUnsupported
}

// CheckpointRelease is not had either.
func (f *faultyStore) CheckpointRelease(context.Context, backend.LeaseRecord, []byte, backend.ExitMode) error {
	return errors.ErrUnsupported
}

// plain is a store without any capability.
type plain struct{ backend.Backend }

func want(t *testing.T, got schedule.Result, err error, outcome schedule.Outcome, wanted ...error) {
	t.Helper()
	if got.Outcome != outcome {
		t.Errorf("outcome = %v, want %v", got.Outcome, outcome)
	}
	if len(wanted) == 0 && err != nil {
		t.Errorf("error = %v, want none", err)
	}
	for _, target := range wanted {
		if !errors.Is(err, target) {
			t.Errorf("error = %v, does not match %v", err, target)
		}
	}
	for _, target := range []error{
		worklease.ErrFenced, worklease.ErrLeaseHeld, worklease.ErrLeaseExpired, worklease.ErrLeaseWindowExhausted,
		worklease.ErrConfigInvalid, context.Canceled, context.DeadlineExceeded, errStore, errWork,
	} {
		if errors.Is(err, target) && !slices.Contains(wanted, target) {
			t.Errorf("error = %v, matches %v", err, target)
		}
	}
}

// probe runs the task on another node, and returns what becomes of that.
func probe(t *testing.T, b backend.Backend) schedule.Outcome {
	t.Helper()
	r, err := nodeOf(t, b, "probe").Run(context.WithoutCancel(t.Context()), schedule.Task{Name: name, AtMostFor: time.Minute}, nothing)
	if err != nil {
		t.Error(err)
	}
	return r.Outcome
}

func nothing(context.Context) error { return nil }

func returns(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

func never(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("the function was called")
		return nil
	}
}
