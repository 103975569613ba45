package model_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/internal/model"
)

// A handClock stands still until it is moved.
type handClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *handClock {
	return &handClock{now: time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)}
}

func (c *handClock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) Advance(_ context.Context, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return nil
}

// Both what a store and what the model asks for the time.
type (
	storeClock struct{ *handClock }
	modelClock struct{ *handClock }
)

func (c storeClock) Now() time.Time { return c.read() }

func (c modelClock) Now(context.Context) (time.Time, error) { return c.read(), nil }

// run compares a store with the model over sequences of random steps, and returns the first difference.
func run(ctx context.Context, sequences int, newBackend func(memory.Clock) backend.Backend) error {
	for seed := range sequences {
		random := rand.New(rand.NewPCG(1, uint64(seed)))
		clock := newClock()
		runner := model.NewRunner(model.Config{Backend: newBackend(storeClock{clock}), Clock: modelClock{clock}})
		for range 60 {
			if err := runner.Step(ctx, model.Generate(runner.Model(), random.IntN)); err != nil {
				return fmt.Errorf("seed %d: %w\n%s", seed, err, runner.Trace())
			}
		}
	}
	return nil
}

func TestMemoryStoreIsAsTheModel(t *testing.T) {
	err := run(t.Context(), 300, func(clock memory.Clock) backend.Backend {
		return memory.New(memory.WithClock(clock))
	})
	if err != nil {
		t.Error(err)
	}
}

// skewed is a store that is wrong in one thing.
type skewed struct {
	backend.Backend
	checkpoint func(state []byte, ttl time.Duration) ([]byte, time.Duration)
	read       func(found backend.Checkpoint) backend.Checkpoint
	sweep      func(opts backend.SweepOptions) backend.SweepOptions
	acquire    func(record backend.LeaseRecord) backend.LeaseRecord
	err        func(err error) error
}

func (s skewed) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	record, err := s.Backend.Acquire(ctx, workID, holderID, ttl)
	if s.acquire != nil && err == nil {
		record = s.acquire(record)
	}
	return record, s.skew(err)
}

func (s skewed) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	if s.checkpoint != nil {
		state, ttl = s.checkpoint(state, ttl)
	}
	return s.skew(s.Backend.Checkpoint(ctx, record, state, ttl))
}

func (s skewed) ReadCheckpoint(ctx context.Context, record backend.LeaseRecord) (backend.Checkpoint, error) {
	found, err := s.Backend.ReadCheckpoint(ctx, record)
	if s.read != nil {
		found = s.read(found)
	}
	return found, s.skew(err)
}

func (s skewed) Sweep(ctx context.Context, opts backend.SweepOptions) (int64, error) {
	if s.sweep != nil {
		opts = s.sweep(opts)
	}
	return s.Backend.Sweep(ctx, opts)
}

func (s skewed) skew(err error) error {
	if s.err != nil && err != nil {
		return s.err(err)
	}
	return err
}

func TestRunnerFindsWhatDiffers(t *testing.T) {
	for name, row := range map[string]struct {
		wrong skewed
		says  string
	}{
		"an expiry too late": {skewed{checkpoint: func(state []byte, ttl time.Duration) ([]byte, time.Duration) { return state, ttl + 1 }}, "want"},
		"a state lost":       {skewed{checkpoint: func(_ []byte, ttl time.Duration) ([]byte, time.Duration) { return nil, ttl }}, "the state is"},
		"empty for no state": {skewed{read: func(found backend.Checkpoint) backend.Checkpoint {
			if found.State == nil {
				found.State = []byte{}
			}
			return found
		}}, "the state is"},
		"an exit of its own": {skewed{read: func(found backend.Checkpoint) backend.Checkpoint {
			if found.PrevExit == backend.ExitExpired {
				found.PrevExit = backend.ExitAbandoned
			}
			return found
		}}, "PrevExit is"},
		"another holder": {skewed{read: func(found backend.Checkpoint) backend.Checkpoint {
			found.PrevHolderID = strings.ToLower(found.PrevHolderID)
			return found
		}}, "PrevHolderID is"},
		"a retention too short": {skewed{sweep: func(opts backend.SweepOptions) backend.SweepOptions {
			opts.Retention--
			return opts
		}}, "the number of rows"},
		"a sweep of what lapsed": {skewed{sweep: func(opts backend.SweepOptions) backend.SweepOptions {
			opts.IncludeExpired = true
			return opts
		}}, "the number of rows"},
		"a token twice": {skewed{acquire: func(record backend.LeaseRecord) backend.LeaseRecord {
			record.FencingToken = (record.FencingToken + 1) / 2
			return record
		}}, "the new token"},
		"an expiry that is not the stored one": {skewed{acquire: func(record backend.LeaseRecord) backend.LeaseRecord {
			record.ExpiresAt = record.ExpiresAt.Add(1)
			return record
		}}, "ExpiresAt is"},
		"another error": {skewed{err: func(error) error { return backend.ErrFenced }}, "the error is"},
		"two errors at once": {skewed{err: func(err error) error {
			return fmt.Errorf("%w: %w", err, backend.ErrFenced)
		}}, "the error is"},
		"no sentinel": {skewed{err: func(err error) error { return fmt.Errorf("%v", err) }}, "the error is"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), 300, func(clock memory.Clock) backend.Backend {
				row.wrong.Backend = memory.New(memory.WithClock(clock))
				return row.wrong
			})
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("a difference that says %q was not found, but: %v", row.says, err)
			}
		})
	}
}
