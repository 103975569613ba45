package proof

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/internal/model"
)

// modelStore is the model as a store, with faults that can be switched on.
type modelStore struct {
	clock *faulty.Clock

	mu     sync.Mutex
	model  model.Store
	before map[string]model.Row // the rows before the last call

	// withoutTest has Checkpoint store whatever it is given, whoever gives it.
	withoutTest bool
	// readThenWrite has Acquire look whether a lease is free, and take it in a second step. Other
	// clients may come in between; or, if there are none, the call before seems to have done so.
	readThenWrite, alone bool
}

var _ backend.Backend = (*modelStore)(nil)

func (s *modelStore) apply(op model.Op) model.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model.Now = s.clock.Now()
	s.before = maps.Clone(s.model.Rows)
	return s.model.Apply(op)
}

func of(kind model.Kind, record backend.LeaseRecord) model.Op {
	return model.Op{Kind: kind, WorkID: record.WorkID, HolderID: record.HolderID, Token: record.FencingToken}
}

func (s *modelStore) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	op := model.Op{Kind: model.Acquire, WorkID: workID, HolderID: holderID, TTL: ttl, Done: ctx.Err() != nil}
	if s.readThenWrite && !op.Done {
		row := s.look(workID)
		if !row.Exists() || row.Over(s.clock.Now()) {
			s.overwrite(workID, row)
		}
	}
	got := s.apply(op)
	return got.Record, got.Err
}

func (s *modelStore) look(workID string) model.Row {
	s.mu.Lock()
	row := s.model.Rows[workID]
	if s.alone {
		row = s.before[workID]
	}
	s.mu.Unlock()
	for range 10 {
		runtime.Gosched()
	}
	return row
}

// overwrite makes the row what it was at the look, whatever it is by now.
func (s *modelStore) overwrite(workID string, row model.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if row.Exists() {
		s.model.Rows[workID] = row
	} else {
		delete(s.model.Rows, workID)
	}
}

func (s *modelStore) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	op := of(model.Checkpoint, record)
	op.State, op.TTL, op.Done = state, ttl, ctx.Err() != nil
	if s.withoutTest {
		s.mu.Lock()
		if row := s.model.Rows[record.WorkID]; row.Exists() {
			op.HolderID, op.Token = row.HolderID, row.Token
		}
		s.mu.Unlock()
	}
	return s.apply(op).Err
}

func (s *modelStore) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	op := of(model.Renew, record)
	op.TTL, op.Done = ttl, ctx.Err() != nil
	return s.apply(op).Err
}

func (s *modelStore) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	op := of(model.Release, record)
	op.Mode, op.Done = mode, ctx.Err() != nil
	return s.apply(op).Err
}

func (s *modelStore) ReadCheckpoint(ctx context.Context, record backend.LeaseRecord) (backend.Checkpoint, error) {
	op := of(model.ReadCheckpoint, record)
	op.Done = ctx.Err() != nil
	got := s.apply(op)
	return got.Found, got.Err
}

func (s *modelStore) Forget(ctx context.Context, record backend.LeaseRecord) error {
	op := of(model.Forget, record)
	op.Done = ctx.Err() != nil
	return s.apply(op).Err
}

func (s *modelStore) Sweep(ctx context.Context, opts backend.SweepOptions) (int64, error) {
	got := s.apply(model.Op{Kind: model.Sweep, Retention: opts.Retention, IncludeExpired: opts.IncludeExpired, Done: ctx.Err() != nil})
	return got.Deleted, got.Err
}

// Now and Advance implement [model.Clock].
func (s *modelStore) Now(context.Context) (time.Time, error) { return s.clock.Now(), nil }

func (s *modelStore) Advance(_ context.Context, d time.Duration) error {
	s.clock.Advance(d)
	return nil
}

var wrongs = map[string]struct {
	store func() *modelStore
	right bool
}{
	"none": {func() *modelStore { return &modelStore{clock: new(faulty.Clock)} }, true},
	"a Checkpoint without the test of the token": {func() *modelStore {
		return &modelStore{clock: new(faulty.Clock), withoutTest: true}
	}, false},
	"an Acquire that reads, then writes": {func() *modelStore {
		return &modelStore{clock: new(faulty.Clock), readThenWrite: true}
	}, false},
}

func TestModelFindsAWrongStore(t *testing.T) {
	for name, wrong := range wrongs {
		t.Run(name, func(t *testing.T) {
			err := differences(t.Context(), 300, func() *modelStore {
				store := wrong.store()
				store.alone = true
				return store
			})
			if (err == nil) != wrong.right {
				t.Errorf("found: %v", err)
			}
		})
	}
}

// differences compares stores with the model by their answers alone.
func differences(ctx context.Context, sequences int, newStore func() *modelStore) error {
	for seed := range sequences {
		random := rand.New(rand.NewPCG(2, uint64(seed)))
		store := newStore()
		runner := model.NewRunner(model.Config{Backend: store, Clock: store})
		for range 40 {
			if err := runner.Step(ctx, model.Generate(runner.Model(), random.IntN)); err != nil {
				return fmt.Errorf("%w\n%s", err, runner.Trace())
			}
		}
	}
	return nil
}

func TestHistoriesOfAWrongStoreAreNotLinearizable(t *testing.T) {
	for name, wrong := range wrongs {
		t.Run(name, func(t *testing.T) {
			histories := 20
			if !wrong.right {
				histories = 1000 // the first will do
			}
			var err error
			for i := 0; i < histories && err == nil; i++ {
				random := rand.New(rand.NewPCG(3, uint64(i)))
				wrongArena := arena{fresh: func() backend.Backend { return wrong.store() }}
				err = record(t.Context(), wrongArena, "work", random).check()
			}
			if (err == nil) != wrong.right {
				t.Errorf("found: %v", err)
			}
		})
	}
}
