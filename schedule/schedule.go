// Package schedule runs periodic tasks once per cluster: every node starts a task when it is due, and one
// of them runs it. The others find its name taken and skip it.
//
//	s, err := schedule.New(store, schedule.Config{HolderID: "pod-1"})
//	...
//	result, err := s.Run(ctx, schedule.Task{Name: "nightly-report", AtMostFor: 10 * time.Minute, AtLeastFor: time.Minute}, report)
//
// Run never waits, and a skip is no error:
//
//	what happens                                outcome             error
//	the function ran                            [OutcomeRan]        the function's, joined with that of the lease
//	another node runs it now                    [OutcomeHeld]       nil
//	it has run, and AtLeastFor is not over      [OutcomeTooSoon]    nil
//	its slot has been run                       [OutcomeAlreadyRan] nil
//	its slot was cut short: see [CatchUp]       [OutcomeMissed]     nil
//	the store cannot tell                       [OutcomeNone]       what the store said
//
// A short task needs AtLeastFor or a Slot: otherwise its name is free again before the clock of a slower
// node strikes. AtLeastFor is a time, to be longer than the nodes' clocks are apart; a Slot is not run again
// whatever they say.
//
// A node that dies leaves the name taken until AtMostFor after its last sign of life. What a function does
// outside the store is not fenced: code that has lost its lease and goes on regardless is a second runner.
// [Held] gives the fencing token for those who can check one.
package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/ident"
)

var (
	// ErrTaskInvalid says that a [Task] makes no sense. It matches [worklease.ErrConfigInvalid].
	ErrTaskInvalid = fmt.Errorf("%w: schedule: invalid task", worklease.ErrConfigInvalid)
	// ErrFnRequired says that there is no function to run. It matches [worklease.ErrConfigInvalid].
	ErrFnRequired = fmt.Errorf("%w: schedule: a function is required", worklease.ErrConfigInvalid)
	// ErrAtLeastForUnsupported says that a task has an AtLeastFor and the store no
	// [backend.DelayedReleaser]. It matches [worklease.ErrConfigInvalid]. Where a wrapper hides that, it comes
	// after the run, and the name is free when AtMostFor is over.
	ErrAtLeastForUnsupported = fmt.Errorf("%w: schedule: the store has no delayed release, which AtLeastFor needs", worklease.ErrConfigInvalid)

	errNilContext = errors.New("worklease: schedule: the context is nil")
)

// Config configures a [Scheduler]. HolderID is required.
type Config struct {
	// HolderID names this node to others, as in [worklease.Config].
	HolderID string
	// CleanupTimeout bounds the last calls to the store after a run. Zero and less mean 5 s.
	CleanupTimeout time.Duration
	// Observer is told of runs and skips, and LeaseObserver of every call to the store; nil: nobody is. A
	// panic of either is logged, and has no other effect.
	Observer      Observer
	LeaseObserver worklease.LeaseObserver
	// Logger gets runs and skips at debug level, renewals that failed as warnings, and other trouble with
	// the store as errors. nil means [slog.Default].
	Logger *slog.Logger
}

// Scheduler runs tasks. It is safe for concurrent use, and has nothing to close.
type Scheduler struct {
	backend  backend.Backend
	releaser backend.DelayedReleaser    // nil: the store has none
	reader   backend.AcquireReader      // nil: the store has none
	saver    backend.CheckpointReleaser // nil: the store has none
	cfg      Config
	observer *guard
}

// New returns a Scheduler that keeps its leases in b. Its errors match [worklease.ErrConfigInvalid].
func New(b backend.Backend, cfg Config) (*Scheduler, error) {
	if b == nil {
		return nil, fmt.Errorf("worklease: schedule: new: %w", worklease.ErrNilBackend)
	}
	if err := ident.Check(cfg.HolderID); err != nil {
		return nil, fmt.Errorf("worklease: schedule: new: %w: the holder ID %w", worklease.ErrConfigInvalid, err)
	}
	s := &Scheduler{backend: b, cfg: cfg, observer: newGuard(cfg)}
	s.releaser, _ = backend.As[backend.DelayedReleaser](b)
	s.reader, _ = backend.As[backend.AcquireReader](b)
	s.saver, _ = backend.As[backend.CheckpointReleaser](b)
	return s, nil
}

// Task says what is to run, and for how long its name is taken. Name and AtMostFor are required. All nodes
// use the same values.
type Task struct {
	// Name is the work ID of the task's lease. Nothing else may keep a checkpoint under it.
	Name string
	// AtMostFor is the TTL of the lease, at least a millisecond: for so long after the last sign of life of
	// a node that died is the name taken.
	AtMostFor time.Duration
	// AtLeastFor is for how long the name stays taken on all nodes, counted from the start of the run and
	// whatever becomes of it, from zero to AtMostFor. Nobody waits for it.
	AtLeastFor time.Duration
	// NoKeepAlive leaves the lease unrenewed, so that AtMostFor is the longest that the function may run:
	// its context ends then. Otherwise the lease is kept while the function runs, however long.
	NoKeepAlive bool
	// Slot, if not zero, is the instant at which the run is due: it is run once, whenever the nodes
	// ask. The slots of a task are run in their order: one that is older than the last is taken for run.
	//
	// To see whether a slot was run, a node takes the name for a moment. Another that asks just then skips
	// its slot: no matter, unless slots follow each other within the time that the clocks are apart. Then the
	// next may be run before anybody asks for that slot again, and it counts as run. A node whose clock is far
	// ahead has slots run that are not due, and all before them count as run: mend the clock, and let
	// [worklease.Lease.Forget] take back what is stored.
	Slot time.Time
	// CatchUp says what becomes of a slot whose run was cut short.
	CatchUp CatchUp
}

// CatchUp says what becomes of a slot that was begun and not finished, since the node died, lost its lease,
// panicked or was told to stop. A function that returned an error has finished.
type CatchUp uint8

const (
	// CatchUpOnce runs it once more: by the next node that asks for this slot or a later one. In the
	// latter case the function is called for the old slot first and then for the new one. If that is cut
	// short, too, it is not run again.
	CatchUpOnce CatchUp = iota
	// CatchUpSkip never runs it again.
	CatchUpSkip
)

func (s *Scheduler) check(task Task) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("worklease: schedule %q: %w: "+format, append([]any{task.Name, ErrTaskInvalid}, args...)...)
	}
	if err := ident.Check(task.Name); err != nil {
		return wrong("the name %w", err)
	}
	switch {
	case task.AtMostFor < time.Millisecond:
		return wrong("AtMostFor is %v, less than 1ms", task.AtMostFor)
	case task.AtLeastFor < 0 || task.AtLeastFor > task.AtMostFor:
		return wrong("AtLeastFor is %v, not from 0 to AtMostFor, %v", task.AtLeastFor, task.AtMostFor)
	case task.Slot.UTC().Year() > 9999 || task.Slot.UTC().Year() < 1: // what is stored could not be read
		return wrong("the Slot is in the year %d", task.Slot.UTC().Year())
	case task.CatchUp > CatchUpSkip:
		return wrong("CatchUp is %d", task.CatchUp)
	case task.AtLeastFor > 0 && s.releaser == nil:
		return fmt.Errorf("worklease: schedule %q: %w", task.Name, ErrAtLeastForUnsupported)
	}
	return nil
}

// failed gives an error its context, where the core has not.
func failed(verb string, token worklease.Token, err error) error {
	return fmt.Errorf("worklease: %s %q as %q: %w", verb, token.WorkID(), token.HolderID(), err)
}

// Func returns a function for schedulers that call func(), such as robfig/cron: it runs the task once each
// time it is called. What the function returns is only logged, as an error, and so are trouble with the store
// and a task that is not valid: not before it is due. ctx is that of every run; one that cannot begin since
// ctx has ended is not logged.
func (s *Scheduler) Func(ctx context.Context, task Task, fn func(ctx context.Context) error) func() {
	return func() {
		r, err := s.Run(ctx, task, fn)
		// Of the rest Run has told the log itself, but for the end of ctx, which is no trouble.
		ours := r.Outcome == OutcomeRan || ctx == nil || errors.Is(err, worklease.ErrConfigInvalid)
		if err != nil && ours {
			s.observer.log(ctx, slog.LevelError, "scheduled task failed", "task", task.Name, "error", err)
		}
	}
}
