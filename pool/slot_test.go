package pool_test

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
	"github.com/aetomala/worklease/pool"
)

// notPermanent has the method, but says no.
type notPermanent struct{ error }

func (notPermanent) Permanent() bool { return false }

// ownPermanent is a PermanentError of the caller's own.
type ownPermanent struct{}

func (*ownPermanent) Error() string   { return "bad request" }
func (*ownPermanent) Permanent() bool { return true }

// The table of the package comment: what one run's result makes a slot do. Time of the second attempt is
// what tells the rows apart.
func TestSlotTable(t *testing.T) {
	const ends = -1 // no second attempt
	atOnce := [2]time.Duration{0, 0}
	failSave := func(err error) func(*testing.T, *faulty.Store) {
		return func(_ *testing.T, s *faulty.Store) {
			s.OnCheckpoint = func(context.Context, backend.LeaseRecord, []byte, time.Duration) error { return err }
		}
	}
	failRelease := func(err error) func(*testing.T, *faulty.Store) {
		return func(_ *testing.T, s *faulty.Store) {
			s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error { return err }
		}
	}
	failRead := func(err error) func(*testing.T, *faulty.Store) {
		return func(_ *testing.T, s *faulty.Store) {
			s.OnReadCheckpoint = func(context.Context, backend.LeaseRecord) (backend.Checkpoint, error) {
				return backend.Checkpoint{}, err
			}
		}
	}
	failAcquire := func(err error) func(*testing.T, *faulty.Store) {
		return func(_ *testing.T, s *faulty.Store) {
			s.OnAcquire = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
				return backend.LeaseRecord{}, err
			}
		}
	}
	state := []byte("state")
	backedOff := [2]time.Duration{backoff, backoff}
	for _, tc := range []struct {
		name   string
		fault  func(*testing.T, *faulty.Store)
		state  []byte
		err    error    // of the work
		events []string // up to the second attempt
		wait   [2]time.Duration
		is     []error // what the last event's error matches
	}{
		{name: "retired", err: worklease.ErrRetire, events: []string{"acquired", "retired"}, wait: [2]time.Duration{ends}},
		{
			name: "retired wins over permanent", err: pool.Permanent(worklease.ErrRetire),
			events: []string{"acquired", "retired"}, wait: [2]time.Duration{ends},
		}, {
			name: "retired, release fails", err: worklease.ErrRetire, fault: failRelease(errStore),
			events: []string{"acquired", "backoff"}, wait: backedOff, is: []error{errStore, worklease.ErrRetire},
		}, {
			name: "retired, save fails", state: state, err: worklease.ErrRetire, fault: failSave(errStore),
			events: []string{"acquired", "backoff"}, wait: backedOff, is: []error{errStore, worklease.ErrRetire},
		}, {
			name: "retired and permanent, release fails", err: pool.Permanent(worklease.ErrRetire), fault: failRelease(errStore),
			events: []string{"acquired", "dead"}, wait: [2]time.Duration{ends}, is: []error{errStore, worklease.ErrRetire},
		},
		{name: "success", events: []string{"acquired"}, wait: [2]time.Duration{rerun, rerun + rerun/5}},
		{name: "fenced, says the work", err: fmt.Errorf("save: %w", worklease.ErrFenced), events: []string{"acquired", "lost"}, wait: atOnce},
		{name: "fenced reading", fault: failRead(backend.ErrFenced), events: []string{"lost"}, wait: atOnce},
		{name: "fenced saving", state: state, fault: failSave(backend.ErrFenced), events: []string{"acquired", "lost"}, wait: atOnce},
		{name: "fenced releasing", fault: failRelease(backend.ErrFenced), events: []string{"acquired", "lost"}, wait: atOnce},
		{
			name: "fenced and permanent", err: pool.Permanent(worklease.ErrFenced),
			events: []string{"acquired", "lost"}, wait: atOnce,
		}, {
			name: "permanent", err: pool.Permanent(errWork), state: state,
			events: []string{"acquired", "dead"}, wait: [2]time.Duration{ends}, is: []error{errWork},
		}, {
			name: "permanent, wrapped", err: fmt.Errorf("step 3: %w", pool.Permanent(errWork)),
			events: []string{"acquired", "dead"}, wait: [2]time.Duration{ends}, is: []error{errWork},
		}, {
			name: "permanent, joined with a failed release", err: pool.Permanent(errWork), fault: failRelease(errStore),
			events: []string{"acquired", "dead"}, wait: [2]time.Duration{ends}, is: []error{errWork, errStore},
		}, {
			name: "permanent in a type of the caller's", err: fmt.Errorf("step 3: %w", new(ownPermanent)),
			events: []string{"acquired", "dead"}, wait: [2]time.Duration{ends},
		}, {
			name: "not permanent after all", err: notPermanent{errWork},
			events: []string{"acquired", "backoff"}, wait: backedOff,
		}, {
			name: "held elsewhere", fault: func(t *testing.T, s *faulty.Store) { holdAll(t, s.Backend, workID) },
			wait: [2]time.Duration{idle, idle + idle/5},
		}, {
			name: "something else is held, says the work", err: fmt.Errorf("lock: %w", worklease.ErrLeaseHeld),
			events: []string{"acquired", "backoff"}, wait: backedOff, is: []error{worklease.ErrLeaseHeld},
		},
		{name: "work fails", err: errWork, state: state, events: []string{"acquired", "backoff"}, wait: backedOff, is: []error{errWork}},
		{
			name: "a context of the work's own ends", err: context.DeadlineExceeded,
			events: []string{"acquired", "backoff"}, wait: backedOff, is: []error{context.DeadlineExceeded},
		},
		{name: "acquire fails", fault: failAcquire(errStore), events: []string{"backoff"}, wait: backedOff, is: []error{errStore}},
		{
			name: "acquire fails as nothing that is held can", fault: failAcquire(backend.ErrFenced),
			events: []string{"backoff"}, wait: backedOff, is: []error{worklease.ErrFenced},
		},
		{name: "reading fails", fault: failRead(errStore), events: []string{"backoff"}, wait: backedOff, is: []error{errStore}},
		{name: "saving fails", state: state, fault: failSave(errStore), events: []string{"acquired", "backoff"}, wait: backedOff, is: []error{errStore}},
		{name: "releasing fails", fault: failRelease(errStore), events: []string{"acquired", "backoff"}, wait: backedOff, is: []error{errStore}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				if tc.fault != nil {
					tc.fault(t, s)
				}
				events := newRecorder()
				var attempts []time.Duration
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				onAcquire := s.OnAcquire
				s.OnAcquire = func(ctx context.Context, id, holder string, ttl time.Duration) (backend.LeaseRecord, error) {
					attempts = append(attempts, time.Since(events.start))
					if len(attempts) == 2 {
						cancel() // whatever comes of this one
						return backend.LeaseRecord{}, ctx.Err()
					}
					if onAcquire != nil {
						return onAcquire(ctx, id, holder, ttl)
					}
					return s.Backend.Acquire(ctx, id, holder, ttl)
				}
				cfg := config(workID)
				cfg.Observer = events
				err := newPool(t, leaseOf(t, s, "a"), cfg, returning(tc.state, tc.err)).Run(ctx)

				events.wantEvents(t, tc.events...)
				if tc.wait[0] == ends {
					if len(attempts) != 1 {
						t.Errorf("there were attempts at %v, want one", attempts)
					}
				} else if len(attempts) != 2 {
					t.Errorf("there were attempts at %v, want two", attempts)
				} else if wait := attempts[1] - attempts[0]; wait < tc.wait[0] || wait > tc.wait[1] {
					t.Errorf("the slot waited for %v, want %v to %v", wait, tc.wait[0], tc.wait[1])
				}
				dead := len(tc.events) > 0 && tc.events[len(tc.events)-1] == "dead"
				if dead != errors.Is(err, pool.ErrAllSlotsDead) || !dead && err != nil {
					t.Errorf("Run returned %v", err)
				}
				for _, e := range events.of(workID) {
					if e.name == "backoff" && e.wait != backoff {
						t.Errorf("the event says a wait of %v, want %v", e.wait, backoff)
					}
					for _, want := range tc.is {
						if e.name != "acquired" && !errors.Is(e.err, want) {
							t.Errorf("the error of the event is %v, does not match %v", e.err, want)
						}
					}
				}
			})
		})
	}
}

// Renewal, too, finds out that a lease is lost: fenced or exhausted make different rows.
func TestLossDuringTheWork(t *testing.T) {
	for _, tc := range []struct {
		name  string
		renew error
		err   error // of the work
		event string
	}{
		{"fenced", backend.ErrFenced, errWork, "lost"},
		{"fenced, and the work gives up", backend.ErrFenced, pool.Permanent(errWork), "lost"},
		{"window ran out", errStore, errWork, "backoff"},
		{"window ran out, and the work saw nothing", errStore, nil, "backoff"},
		{"window ran out, and the work gives up", errStore, pool.Permanent(errWork), "dead"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error { return tc.renew }
				events := newRecorder()
				cfg := config(workID)
				cfg.Observer = events
				ctx, cancel := context.WithTimeout(t.Context(), ttl+time.Millisecond)
				defer cancel()
				err := newPool(t, leaseOf(t, s, "a"), cfg, untilDone(nil, tc.err)).Run(ctx)
				got := events.of(workID)
				if len(got) != 2 || got[0].name != "acquired" || got[1].name != tc.event {
					t.Fatalf("the events are %v, want acquired and %s", got, tc.event)
				}
				if tc.renew == errStore && !errors.Is(got[1].err, worklease.ErrLeaseWindowExhausted) {
					t.Errorf("the error is %v", got[1].err)
				}
				if dead := tc.event == "dead"; dead != errors.Is(err, pool.ErrAllSlotsDead) {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}
