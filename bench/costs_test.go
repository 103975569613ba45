package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/leader"
	"github.com/aetomala/worklease/schedule"
	"github.com/aetomala/worklease/worker"
)

// tableCosts counts what each operation is made of. Nothing in it depends on how fast the machine is.
func tableCosts(t *testing.T, s *pgtest.Server) {
	tab := table{
		title: "What an operation is made of",
		about: "PostgreSQL through pgx, each round trip a statement and a transaction; Redis: one script a round trip, and the commands in it, TIME included. " +
			"The work IDs have been used before, their state is of 100 bytes. Averages.",
		head: []string{"operation", "PostgreSQL: round trips", "WAL", "Redis: round trips", "commands"},
	}
	pg, server := newPostgresMeter(t, s), newRedisMeter(t)
	for _, c := range costed {
		roundTrips, wal := pg.costs(t, c)
		scripts, commands := server.costs(t, c)
		tab.add(c.name, average(roundTrips), average(wal)+" B", average(scripts), average(commands))
	}
	tab.print(t)
}

func average(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// capable is what both stores can do.
type capable interface {
	backend.Backend
	backend.AcquireReader
	backend.BatchRenewer
	backend.CheckpointReleaser
	backend.DelayedReleaser
	backend.Looker
}

// subject is what operations are done to.
type subject struct {
	store capable
	lease worklease.Lease
	sched *schedule.Scheduler

	workID string
	record backend.LeaseRecord
	many   []backend.LeaseRecord
	runs   int
}

func newSubject(t *testing.T, store capable) *subject {
	t.Helper()
	lease, err := worklease.New(store, worklease.Config{TTL: ttl, HolderID: "holder"})
	if err != nil {
		t.Fatal(err)
	}
	sched, err := schedule.New(store, schedule.Config{HolderID: "holder"})
	if err != nil {
		t.Fatal(err)
	}
	s := &subject{store: store, lease: lease, sched: sched}
	for i := range pick(100, 3) {
		record, err := store.Acquire(t.Context(), "batch "+strconv.Itoa(i), "holder", ttl)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Checkpoint(t.Context(), record, state100, ttl); err != nil {
			t.Fatal(err)
		}
		s.many = append(s.many, record)
	}
	return s
}

func (s *subject) acquire(ctx context.Context) (err error) {
	s.record, err = s.store.Acquire(ctx, s.workID, "holder", ttl)
	return err
}

func (s *subject) hold(ctx context.Context) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	return s.store.Checkpoint(ctx, s.record, state100, ttl)
}

func (s *subject) release(ctx context.Context) error {
	return s.store.Release(ctx, s.record, backend.ExitFinished)
}

func (s *subject) run(ctx context.Context, task schedule.Task, want schedule.Outcome) error {
	task.Name, task.AtMostFor = s.workID, ttl
	result, err := s.sched.Run(ctx, task, func(context.Context) error { return nil })
	if err == nil && result.Outcome != want {
		err = fmt.Errorf("the outcome is %v, not %v", result.Outcome, want)
	}
	return err
}

func nothing(*subject, context.Context) error { return nil }

// cost is an operation. Only do is counted.
type cost struct {
	name              string
	before, do, after func(*subject, context.Context) error
	fresh             bool // each is of a work ID of its own
}

var costed = []cost{
	{"Acquire, free", nothing, (*subject).acquire, (*subject).release, false},
	{"Acquire, new", nothing, (*subject).acquire, (*subject).release, true},
	{"Acquire, held", (*subject).acquire, func(s *subject, ctx context.Context) error {
		if _, err := s.store.Acquire(ctx, s.workID, "other", ttl); !errors.Is(err, backend.ErrLeaseHeld) {
			return fmt.Errorf("not held: %w", err)
		}
		return nil
	}, (*subject).release, false},
	{"AcquireRead, free", nothing, func(s *subject, ctx context.Context) (err error) {
		s.record, _, err = s.store.AcquireRead(ctx, s.workID, "holder", ttl)
		return err
	}, (*subject).release, false},
	{"Renew", (*subject).hold, func(s *subject, ctx context.Context) error {
		return s.store.Renew(ctx, s.record, ttl)
	}, (*subject).release, false},
	{"RenewBatch of 100", nothing, func(s *subject, ctx context.Context) error {
		_, err := s.store.RenewBatch(ctx, s.many, ttl)
		return err
	}, nothing, false},
	{"Checkpoint", (*subject).hold, func(s *subject, ctx context.Context) error {
		return s.store.Checkpoint(ctx, s.record, state100, ttl)
	}, (*subject).release, false},
	{"ReadCheckpoint", (*subject).hold, func(s *subject, ctx context.Context) error {
		_, err := s.store.ReadCheckpoint(ctx, s.record)
		return err
	}, (*subject).release, false},
	{"Release", (*subject).hold, (*subject).release, nothing, false},
	{"ReleaseAfter", (*subject).hold, func(s *subject, ctx context.Context) error {
		return s.store.ReleaseAfter(ctx, s.record, backend.ExitFinished, time.Nanosecond)
	}, nothing, false},
	{"CheckpointRelease", (*subject).acquire, func(s *subject, ctx context.Context) error {
		return s.store.CheckpointRelease(ctx, s.record, state100, backend.ExitFinished)
	}, nothing, false},
	{"Forget", (*subject).hold, func(s *subject, ctx context.Context) error {
		return s.store.Forget(ctx, s.record)
	}, nothing, false},
	{"Free of 100", nothing, func(s *subject, ctx context.Context) error {
		workIDs := make([]string, len(s.many))
		for i, record := range s.many {
			workIDs[i] = record.WorkID
		}
		_, err := s.store.Free(ctx, workIDs)
		return err
	}, nothing, false},
	{"worker.Run, no new state", nothing, func(s *subject, ctx context.Context) error {
		return work(ctx, s, nil)
	}, nothing, false},
	{"worker.Run, new state", nothing, func(s *subject, ctx context.Context) error {
		return work(ctx, s, state100)
	}, nothing, false},
	{"leader.Elect, one term", nothing, func(s *subject, ctx context.Context) error {
		return leader.Elect(ctx, s.lease, s.workID, leader.Config{}, func(context.Context) error { return nil })
	}, nothing, false},
	{"schedule.Run", nothing, func(s *subject, ctx context.Context) error {
		return s.run(ctx, schedule.Task{}, schedule.OutcomeRan)
	}, nothing, false},
	{"schedule.Run, AtLeastFor", nothing, func(s *subject, ctx context.Context) error {
		return s.run(ctx, schedule.Task{AtLeastFor: ttl}, schedule.OutcomeRan)
	}, nothing, true},
	{"schedule.Run, Slot", nothing, func(s *subject, ctx context.Context) error {
		s.runs++
		return s.run(ctx, schedule.Task{Slot: time.Unix(int64(s.runs), 0)}, schedule.OutcomeRan)
	}, nothing, true},
	{"schedule.Run, another node runs it", (*subject).acquire, func(s *subject, ctx context.Context) error {
		return s.run(ctx, schedule.Task{}, schedule.OutcomeHeld)
	}, (*subject).release, false},
}

func work(ctx context.Context, s *subject, state []byte) error {
	runner, err := worker.NewRunner(worker.RunnerConfig{
		Lease:  s.lease,
		WorkFn: func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) { return state, nil },
	})
	if err != nil {
		return err
	}
	return runner.Run(ctx, s.workID)
}

// repeat does the operation some times to get ready, and then as often as is returned; around is called for each
// part that counts.
func (s *subject) repeat(t *testing.T, c cost, around func(func())) float64 {
	t.Helper()
	must := func(do func(*subject, context.Context) error) {
		t.Helper()
		if err := do(s, t.Context()); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	const rows = 5
	n := pick(100, 2)
	for i := range n + 2*rows {
		s.workID = c.name + " " + strconv.Itoa(i%rows)
		if c.fresh {
			s.workID = c.name + " " + strconv.Itoa(i)
		}
		must(c.before)
		if i < 2*rows {
			must(c.do)
		} else {
			around(func() { must(c.do) })
		}
		must(c.after)
	}
	return float64(n)
}
