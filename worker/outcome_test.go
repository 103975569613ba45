package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/worker"
)

// outcome is one way for a tenure of holder "a" to end. A holder before it has left "before", finished.
type outcome struct {
	name   string
	fault  func(*faulty.Store)
	work   worker.WorkFn
	cancel bool // Run's context is cancelled after a second, by errShutdown

	state    string             // what the successor finds
	exit     worklease.ExitMode // what it learns of "a"; expired: it has to wait for that
	errs     []error            // what Run's error matches; none: no error
	saves    int64
	releases int64
}

var outcomes = []outcome{
	// The checkpoint cannot be read.
	{
		name: "the reading is fenced", fault: readAnswers(backend.ErrFenced),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrFenced},
	}, {
		name: "the reading fails", fault: readAnswers(errStore),
		state: "before", exit: worklease.ExitExpired, errs: []error{errStore},
	},

	// Fenced.
	{
		name: "the work says fenced", work: returning([]byte("new"), fmt.Errorf("save: %w", worklease.ErrFenced)),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrFenced},
	}, {
		name: "the work says fenced and retire", work: returning([]byte("new"), errors.Join(worklease.ErrRetire, worklease.ErrFenced)),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrFenced, worklease.ErrRetire},
	}, {
		name: "renewal is fenced, the work returns an error", fault: renewAnswers(backend.ErrFenced), work: untilDone([]byte("new"), errWork),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrFenced},
	}, {
		name: "renewal is fenced, the work returns nil", fault: renewAnswers(backend.ErrFenced), work: untilDone([]byte("new"), nil),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrFenced},
	}, {
		name: "renewal is fenced, the work retires", fault: renewAnswers(backend.ErrFenced), work: untilDone(nil, worklease.ErrRetire),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrFenced},
	}, {
		name: "the window runs out, the work says fenced", fault: renewAnswers(errStore), work: untilDone(nil, worklease.ErrFenced),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrFenced},
	},

	// The window runs out.
	{
		name: "the window runs out, the work returns an error", fault: renewAnswers(errStore), work: untilDone([]byte("new"), errWork),
		state: "before", exit: worklease.ExitExpired, errs: []error{errWork, worklease.ErrLeaseWindowExhausted},
	}, {
		name: "the window runs out, the work returns nil", fault: renewAnswers(errStore), work: untilDone([]byte("new"), nil),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrLeaseWindowExhausted},
	}, {
		name: "the window runs out, the work retires", fault: renewAnswers(errStore), work: untilDone([]byte("new"), worklease.ErrRetire),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrRetire, worklease.ErrLeaseWindowExhausted},
	}, {
		name: "renewal finds the lease lapsed", fault: renewAnswers(backend.ErrLeaseExpired), work: untilDone([]byte("new"), errWork),
		state: "before", exit: worklease.ExitExpired,
		errs: []error{errWork, worklease.ErrLeaseWindowExhausted, worklease.ErrLeaseExpired},
	}, {
		name: "the window runs out under work that does not look", fault: renewAnswers(errStore), work: lasting(2*ttl, []byte("new"), nil),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrLeaseWindowExhausted},
	}, {
		name: "the window runs out in the drain", fault: renewAnswers(errStore), work: lasting(2*ttl, []byte("new"), errWork), cancel: true,
		state: "before", exit: worklease.ExitExpired, errs: []error{errWork, worklease.ErrLeaseWindowExhausted},
	},

	// Retired.
	{
		name: "retire", work: returning([]byte("new"), worklease.ErrRetire),
		state: "new", exit: worklease.ExitRetired, saves: 1, releases: 1,
	}, {
		name: "retire, wrapped", work: returning([]byte("new"), fmt.Errorf("nothing left: %w", worklease.ErrRetire)),
		state: "new", exit: worklease.ExitRetired, saves: 1, releases: 1,
	}, {
		name: "retire, joined with another error", work: returning([]byte("new"), errors.Join(errWork, worklease.ErrRetire)),
		state: "new", exit: worklease.ExitRetired, saves: 1, releases: 1,
	}, {
		name: "retire, with no state", work: returning(nil, worklease.ErrRetire),
		state: "before", exit: worklease.ExitRetired, releases: 1,
	}, {
		name: "retire, after ctx was cancelled", work: untilDone([]byte("new"), worklease.ErrRetire), cancel: true,
		state: "new", exit: worklease.ExitRetired, saves: 1, releases: 1,
	},

	// Finished.
	{
		name: "finish with state", work: returning([]byte("new"), nil),
		state: "new", exit: worklease.ExitFinished, saves: 1, releases: 1,
	}, {
		name: "finish with nil: the state stays", work: returning(nil, nil),
		state: "before", exit: worklease.ExitFinished, releases: 1,
	}, {
		name: "finish with empty: the state is cleared", work: returning([]byte{}, nil),
		state: "", exit: worklease.ExitFinished, saves: 1, releases: 1,
	}, {
		name: "finish with bytes of every kind", work: returning([]byte("\x00\x01\xff\\"), nil),
		state: "\x00\x01\xff\\", exit: worklease.ExitFinished, saves: 1, releases: 1,
	}, {
		name: "finish after many TTLs", work: lasting(20*ttl, []byte("new"), nil),
		state: "new", exit: worklease.ExitFinished, saves: 1, releases: 1,
	}, {
		name: "finish after ctx was cancelled", work: untilDone([]byte("new"), nil), cancel: true,
		state: "new", exit: worklease.ExitFinished, saves: 1, releases: 1,
	},

	// Abandoned.
	{
		name: "give up with state", work: returning([]byte("new"), errWork),
		state: "new", exit: worklease.ExitAbandoned, errs: []error{errWork}, saves: 1, releases: 1,
	}, {
		name: "give up with nil", work: returning(nil, errWork),
		state: "before", exit: worklease.ExitAbandoned, errs: []error{errWork}, releases: 1,
	}, {
		name: "give up with empty", work: returning([]byte{}, errWork),
		state: "", exit: worklease.ExitAbandoned, errs: []error{errWork}, saves: 1, releases: 1,
	}, {
		name: "give up after ctx was cancelled", work: untilDone([]byte("new"), errWork), cancel: true,
		state: "new", exit: worklease.ExitAbandoned, errs: []error{errWork}, saves: 1, releases: 1,
	}, {
		name: "give up with ctx's own error", work: stopped, cancel: true,
		state: "new", exit: worklease.ExitAbandoned, errs: []error{context.Canceled}, saves: 1, releases: 1,
	}, {
		// The caller's cause says nothing about the lease.
		name: "give up with the cause of ctx", work: stoppedBecause, cancel: true,
		state: "new", exit: worklease.ExitAbandoned, errs: []error{errShutdown}, saves: 1, releases: 1,
	},

	// The final checkpoint fails.
	{
		name: "the final checkpoint is fenced", fault: saveAnswers(backend.ErrFenced), work: returning([]byte("new"), nil),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrFenced}, saves: 1,
	}, {
		name: "the final checkpoint of work that gives up is fenced", fault: saveAnswers(backend.ErrFenced), work: returning([]byte("new"), errWork),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrFenced}, saves: 1,
	}, {
		name: "the final checkpoint fails", fault: saveAnswers(errStore), work: returning([]byte("new"), nil),
		state: "before", exit: worklease.ExitAbandoned, errs: []error{errStore}, saves: 1, releases: 1,
	}, {
		name: "the final checkpoint of work that gives up fails", fault: saveAnswers(errStore), work: returning([]byte("new"), errWork),
		state: "before", exit: worklease.ExitAbandoned, errs: []error{errStore, errWork}, saves: 1, releases: 1,
	}, {
		// Retired rows are swept, and the last state would be lost with them.
		name: "the final checkpoint of work that retires fails", fault: saveAnswers(errStore), work: returning([]byte("new"), worklease.ErrRetire),
		state: "before", exit: worklease.ExitAbandoned, errs: []error{errStore, worklease.ErrRetire}, saves: 1, releases: 1,
	},

	// The release fails.
	{
		name: "the release is fenced", fault: releaseAnswers(backend.ErrFenced), work: returning([]byte("new"), nil),
		state: "new", exit: worklease.ExitExpired, errs: []error{worklease.ErrFenced}, saves: 1, releases: 1,
	}, {
		name: "the release of work that gives up is fenced", fault: releaseAnswers(backend.ErrFenced), work: returning([]byte("new"), errWork),
		state: "new", exit: worklease.ExitExpired, errs: []error{worklease.ErrFenced}, saves: 1, releases: 1,
	}, {
		name: "the release fails", fault: releaseAnswers(errStore), work: returning([]byte("new"), nil),
		state: "new", exit: worklease.ExitExpired, errs: []error{errStore}, saves: 1, releases: 1,
	}, {
		name: "the release of work that gives up fails", fault: releaseAnswers(errStore), work: returning([]byte("new"), errWork),
		state: "new", exit: worklease.ExitExpired, errs: []error{errStore, errWork}, saves: 1, releases: 1,
	}, {
		name: "the release of work that retires fails", fault: releaseAnswers(errStore), work: returning([]byte("new"), worklease.ErrRetire),
		state: "new", exit: worklease.ExitExpired, errs: []error{errStore, worklease.ErrRetire}, saves: 1, releases: 1,
	}, {
		name: "the release comes too late", fault: releaseAnswers(backend.ErrLeaseExpired), work: returning(nil, nil),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrLeaseExpired}, releases: 1,
	}, {
		name: "both fail", fault: both(saveAnswers(errStore), releaseAnswers(backend.ErrLeaseExpired)), work: returning([]byte("new"), errWork),
		state: "before", exit: worklease.ExitExpired, errs: []error{errStore, worklease.ErrLeaseExpired, errWork}, saves: 1, releases: 1,
	}, {
		name: "the final checkpoint fails and the release is fenced", fault: both(saveAnswers(errStore), releaseAnswers(backend.ErrFenced)),
		work:  returning([]byte("new"), errWork),
		state: "before", exit: worklease.ExitExpired, errs: []error{worklease.ErrFenced, errStore}, saves: 1, releases: 1,
	},
}

func TestOutcome(t *testing.T) {
	for _, o := range outcomes {
		t.Run(o.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { o.check(t) })
		})
	}
}

func (o outcome) check(t *testing.T) {
	if o.work == nil {
		o.work = neverCalled(t)
	}
	runner, s := newHolder(t, o.work)
	earlier := newRunner(t, worker.RunnerConfig{Lease: leaseOf(t, s.Backend, "earlier"), WorkFn: returning([]byte("before"), nil)})
	wantErr(t, earlier.Run(t.Context(), workID))
	if o.fault != nil {
		o.fault(s)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if o.cancel {
		time.AfterFunc(time.Second, func() { cancel(errShutdown) })
	}

	wantErr(t, runner.Run(ctx, workID), o.errs...)

	if n := s.Checkpoints.Load(); n != o.saves {
		t.Errorf("the store was asked to save %d times, want %d", n, o.saves)
	}
	if n := s.Releases.Load(); n != o.releases {
		t.Errorf("the store was asked to release %d times, want %d", n, o.releases)
	}
	if o.exit == worklease.ExitExpired {
		time.Sleep(ttl)
	}
	wantFound(t, inherit(t, s), o.state, o.exit, "a")
	wantRenewalOver(t, s)
}

func readAnswers(err error) func(*faulty.Store) {
	return func(s *faulty.Store) {
		s.OnReadCheckpoint = func(context.Context, backend.LeaseRecord) (backend.Checkpoint, error) {
			return backend.Checkpoint{State: []byte("rubbish"), PrevExit: backend.ExitFinished}, err
		}
	}
}

func both(first, second func(*faulty.Store)) func(*faulty.Store) {
	return func(s *faulty.Store) {
		first(s)
		second(s)
	}
}

func lasting(d time.Duration, state []byte, err error) worker.WorkFn {
	return func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) {
		time.Sleep(d)
		return state, err
	}
}

func stopped(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
	awaitEnd(ctx)
	return []byte("new"), ctx.Err()
}

func stoppedBecause(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
	awaitEnd(ctx)
	return []byte("new"), context.Cause(ctx)
}
