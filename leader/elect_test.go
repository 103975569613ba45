package leader_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/leader"
)

func TestElectRefusesWhatCannotWork(t *testing.T) {
	lease := leaseOf(t, newStore(), "a")
	for _, tc := range []struct {
		name  string
		lease worklease.Lease
		fn    func(context.Context) error
		want  error
	}{
		{"no lease", nil, neverCalled(t), leader.ErrLeaseRequired},
		{"no function", lease, nil, leader.ErrFnRequired},
		{"neither", nil, nil, leader.ErrLeaseRequired},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, stand := range map[string]func(context.Context, worklease.Lease, string, leader.Config, func(context.Context) error) error{
				"Elect": leader.Elect, "Run": leader.Run,
			} {
				err := stand(t.Context(), tc.lease, workID, leader.Config{BackoffInterval: time.Hour}, tc.fn)
				if !errors.Is(err, tc.want) || !errors.Is(err, worklease.ErrConfigInvalid) {
					t.Errorf("%s: error = %v", name, err)
				}
			}
		})
	}
}

func TestNilContextIsAnError(t *testing.T) {
	lease := leaseOf(t, newStore(), "a")
	var none context.Context
	if err := leader.Elect(none, lease, workID, leader.Config{BackoffInterval: time.Hour}, neverCalled(t)); err == nil {
		t.Error("Elect: no error")
	}
	if err := leader.Run(none, lease, workID, leader.Config{}, neverCalled(t)); err == nil {
		t.Error("Run: no error")
	}
}

// Each row of the package's table: what is returned, what the successor finds, which callbacks came.
func TestOutcomes(t *testing.T) {
	answer := func(err error) func(*faulty.Store) {
		return func(s *faulty.Store) {
			s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error { return err }
		}
	}
	renewal := func(err error) func(*faulty.Store) {
		return func(s *faulty.Store) {
			s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error { return err }
		}
	}
	untilDone := func(err error) func(context.Context) error {
		return func(ctx context.Context) error {
			awaitEnd(ctx)
			return err
		}
	}
	const elected, lost, relinquished = "elected at 0s", "lost at ", "relinquished at 0s"
	for _, tc := range []struct {
		name   string
		fault  func(*faulty.Store)
		fn     func(context.Context) error
		errs   []error
		exit   worklease.ExitMode
		events []string
	}{
		{
			name: "nil", fn: returns(nil), exit: worklease.ExitFinished, events: []string{elected, relinquished},
		}, {
			name: "retired", fn: returns(worklease.ErrRetire), exit: worklease.ExitRetired, events: []string{elected, relinquished},
		}, {
			name: "another error", fn: returns(errWork), errs: []error{errWork}, exit: worklease.ExitAbandoned, events: []string{elected},
		}, {
			name: "fenced by renewal", fault: renewal(backend.ErrFenced), fn: untilDone(errWork),
			errs: []error{worklease.ErrFenced}, exit: worklease.ExitExpired, events: []string{elected, lost},
		}, {
			name: "fenced by the function's error", fn: returns(worklease.ErrFenced),
			errs: []error{worklease.ErrFenced}, exit: worklease.ExitExpired, events: []string{elected, lost},
		}, {
			name: "expired by renewal", fault: renewal(backend.ErrLeaseExpired), fn: untilDone(errWork),
			errs: []error{errWork, worklease.ErrLeaseWindowExhausted, worklease.ErrLeaseExpired},
			exit: worklease.ExitExpired, events: []string{elected, lost},
		}, {
			name: "window ran out", fault: renewal(errStore), fn: untilDone(errWork),
			errs: []error{errWork, worklease.ErrLeaseWindowExhausted}, exit: worklease.ExitExpired, events: []string{elected, lost},
		}, {
			name: "window ran out, and the function says all is well", fault: renewal(errStore), fn: untilDone(nil),
			errs: []error{worklease.ErrLeaseWindowExhausted}, exit: worklease.ExitExpired, events: []string{elected, lost},
		}, {
			name: "fenced in the release", fault: answer(backend.ErrFenced), fn: returns(nil),
			errs: []error{worklease.ErrFenced}, exit: worklease.ExitExpired, events: []string{elected, lost},
		}, {
			name: "expired in the release", fault: answer(backend.ErrLeaseExpired), fn: returns(nil),
			errs: []error{worklease.ErrLeaseExpired}, exit: worklease.ExitExpired, events: []string{elected, lost},
		}, {
			name: "release fails", fault: answer(errStore), fn: returns(nil),
			errs: []error{errStore}, exit: worklease.ExitExpired, events: []string{elected},
		}, {
			name: "release fails after an error", fault: answer(errStore), fn: returns(errWork),
			errs: []error{errWork, errStore}, exit: worklease.ExitExpired, events: []string{elected},
		}, {
			name: "release fails after retiring", fault: answer(errStore), fn: returns(worklease.ErrRetire),
			errs: []error{errStore, worklease.ErrRetire}, exit: worklease.ExitExpired, events: []string{elected},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				if tc.fault != nil {
					tc.fault(s)
				}
				story := newStory()
				err := leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, story.told(leader.Config{}), tc.fn)
				wantErr(t, err, tc.errs...)
				if tc.exit == worklease.ExitExpired {
					time.Sleep(ttl)
				}
				if got := exitFound(t, s); got != tc.exit {
					t.Errorf("the successor finds %v, want %v", got, tc.exit)
				}
				// When a loss is noticed depends on the renewal's jitter; other tests pin it.
				for i, event := range story.events {
					if strings.HasPrefix(event, lost) {
						story.events[i] = lost
					}
				}
				story.want(t, tc.events...)
				if n := s.Reads.Load() + s.Checkpoints.Load(); n != 0 {
					t.Errorf("a leader has no state, and read or wrote it %d times", n)
				}
			})
		})
	}
}

func TestNoTermNoCallbacks(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tc := range []struct {
		name   string
		ctx    context.Context
		workID string
		fault  error
		held   bool
	}{
		{name: "held", held: true},
		{name: "store down", fault: errStore},
		{name: "ctx has ended", ctx: cancelled},
		{name: "bad work ID", workID: "a\x00b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				if tc.held {
					if _, err := s.Backend.Acquire(t.Context(), workID, "rival", time.Hour); err != nil {
						t.Fatal(err)
					}
				}
				if tc.fault != nil {
					s.OnAcquire = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
						return backend.LeaseRecord{}, tc.fault
					}
				}
				ctx, id := t.Context(), workID
				if tc.ctx != nil {
					ctx = tc.ctx
				}
				if tc.workID != "" {
					id = tc.workID
				}
				story := newStory()
				if err := leader.Elect(ctx, leaseOf(t, s, "a"), id, story.told(leader.Config{}), neverCalled(t)); err == nil {
					t.Error("no error")
				}
				story.want(t)
				if n := s.Releases.Load() + s.Renewals.Load(); n != 0 {
					t.Errorf("the store got %d further calls", n)
				}
			})
		})
	}
}

// A leader that is told to stop keeps its lease until it has stopped, however long that takes.
func TestShutdownKeepsTheLeaseWhileTheFunctionDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		story := newStory()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errShutdown) })
		err := leader.Elect(ctx, leaseOf(t, s, "a"), workID, story.told(leader.Config{BackoffInterval: time.Hour}),
			func(ctx context.Context) error {
				awaitEnd(ctx)
				story.add("told to stop")
				if cause := context.Cause(ctx); cause != errShutdown {
					t.Errorf("cause = %v", cause)
				}
				time.Sleep(3 * ttl)
				if _, ok := worklease.LeaseWindow(ctx); !ok {
					t.Error("the window is closed while the function drains")
				}
				return context.Cause(ctx)
			})
		story.add("returned")
		wantErr(t, err, errShutdown)
		story.want(t, "elected at 0s", "told to stop at 1s", "returned at 31s") // no pause: ctx has ended
		if got := exitFound(t, s); got != worklease.ExitAbandoned {
			t.Errorf("the successor finds %v", got)
		}
	})
}

func TestFunctionThatFinishesAfterShutdownIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		story := newStory()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := leader.Elect(ctx, leaseOf(t, s, "a"), workID, story.told(leader.Config{}), func(ctx context.Context) error {
			awaitEnd(ctx)
			return nil
		})
		wantErr(t, err)
		story.want(t, "elected at 0s", "relinquished at 1s")
		if got := exitFound(t, s); got != worklease.ExitFinished {
			t.Errorf("the successor finds %v", got)
		}
	})
}

func TestReleaseIsBoundedByCleanupTimeout(t *testing.T) {
	for _, tc := range []struct{ set, want time.Duration }{{0, 5 * time.Second}, {-1, 5 * time.Second}, {time.Second, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			hang := make(chan struct{})
			defer close(hang)
			s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error {
				<-hang // as a driver that does not know of contexts
				return nil
			}
			story := newStory()
			err := leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, leader.Config{CleanupTimeout: tc.set}, returns(errWork))
			story.add("returned")
			wantErr(t, err, errWork, context.DeadlineExceeded)
			story.want(t, "returned at "+tc.want.String())
		})
	}
}
