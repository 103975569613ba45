package tenure_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/internal/tenure"
)

// What a pool decides by is in the Result: who held, what is recorded, and why not.
func TestResultOfATenure(t *testing.T) {
	saved := func(err error) tenure.Work {
		return func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) {
			return []byte("state"), err
		}
	}
	saveFails := func(err error) func(*faulty.Store) {
		return func(s *faulty.Store) {
			s.OnCheckpoint = func(context.Context, backend.LeaseRecord, []byte, time.Duration) error { return err }
		}
	}
	releaseFails := func(err error) func(*faulty.Store) {
		return func(s *faulty.Store) {
			s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error { return err }
		}
	}
	for _, tc := range []struct {
		name  string
		fault func(*faulty.Store)
		work  tenure.Work
		held  bool // a token was handed out
		exit  worklease.ExitMode
		lost  bool
		is    []error // none: no error
	}{
		{
			name: "finished", work: saved(nil), held: true, exit: worklease.ExitFinished,
		}, {
			name: "retired", work: saved(worklease.ErrRetire), held: true, exit: worklease.ExitRetired,
		}, {
			name: "abandoned", work: saved(errWork), held: true, exit: worklease.ExitAbandoned, is: []error{errWork},
		}, {
			name: "not acquired", work: saved(nil), is: []error{errStore},
			fault: func(s *faulty.Store) {
				s.OnAcquire = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
					return backend.LeaseRecord{}, errStore
				}
			},
		}, {
			name: "not read", work: saved(nil), held: true, is: []error{errStore},
			fault: func(s *faulty.Store) {
				s.OnReadCheckpoint = func(context.Context, backend.LeaseRecord) (backend.Checkpoint, error) {
					return backend.Checkpoint{}, errStore
				}
			},
		}, {
			name: "fenced by the work's error", work: saved(worklease.ErrFenced), held: true, lost: true, is: []error{worklease.ErrFenced},
		}, {
			name: "fenced by renewal", work: untilDone, held: true, lost: true, is: []error{worklease.ErrFenced},
			fault: func(s *faulty.Store) {
				s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error { return backend.ErrFenced }
			},
		}, {
			name: "window ran out", work: untilDone, held: true, lost: true, is: []error{errWork, worklease.ErrLeaseWindowExhausted},
			fault: func(s *faulty.Store) { s.OnRenew = renewFails },
		}, {
			name: "fenced in the final save", work: saved(nil), held: true, lost: true, is: []error{worklease.ErrFenced},
			fault: saveFails(backend.ErrFenced),
		}, {
			name: "finished but not saved", work: saved(nil), held: true, exit: worklease.ExitAbandoned, is: []error{errStore},
			fault: saveFails(errStore),
		}, {
			name: "retired but not saved", work: saved(worklease.ErrRetire), held: true, exit: worklease.ExitAbandoned,
			is: []error{errStore, worklease.ErrRetire}, fault: saveFails(errStore),
		}, {
			name: "fenced in the release", work: saved(nil), held: true, lost: true, is: []error{worklease.ErrFenced},
			fault: releaseFails(backend.ErrFenced),
		}, {
			name: "expired at the release", work: saved(errWork), held: true, lost: true,
			is: []error{errWork, worklease.ErrLeaseExpired}, fault: releaseFails(backend.ErrLeaseExpired),
		}, {
			name: "retired but not released", work: saved(worklease.ErrRetire), held: true,
			is: []error{errStore, worklease.ErrRetire}, fault: releaseFails(errStore),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				if tc.fault != nil {
					tc.fault(s)
				}
				got := tenure.Run(t.Context(), workID, tenure.Config{Lease: newLease(t, s)}, tc.work)
				if held := got.Token != (worklease.Token{}); held != tc.held {
					t.Errorf("Token = %v, want one: %v", got.Token, tc.held)
				}
				if tc.held && got.Token.WorkID() != workID {
					t.Errorf("Token is of %q", got.Token.WorkID())
				}
				if got.Lost != tc.lost {
					t.Errorf("Lost = %v", got.Lost)
				}
				if got.Exit != tc.exit {
					t.Errorf("Exit = %v, want %v", got.Exit, tc.exit)
				}
				if len(tc.is) == 0 && got.Err != nil {
					t.Errorf("Err = %v", got.Err)
				}
				for _, want := range tc.is {
					if !errors.Is(got.Err, want) {
						t.Errorf("Err = %v, does not match %v", got.Err, want)
					}
				}
			})
		})
	}
}

func TestStatelessTenureReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		lease := newLease(t, s)
		save := func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) {
			return []byte("state"), nil
		}
		if got := tenure.Run(t.Context(), workID, tenure.Config{Lease: lease}, save); got.Err != nil || s.Reads.Load() != 1 {
			t.Fatalf("a tenure with state: %v, read %d times", got.Err, s.Reads.Load())
		}
		got := tenure.Run(t.Context(), workID, tenure.Config{Lease: lease, Stateless: true},
			func(_ context.Context, _ worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
				if prior.State != nil || prior.PrevExit != worklease.ExitNone || prior.PrevHolderID != "" {
					t.Errorf("prior = %+v, want none", prior)
				}
				return nil, nil
			})
		if got.Err != nil || got.Exit != worklease.ExitFinished {
			t.Errorf("result = %+v", got)
		}
		if n := s.Reads.Load(); n != 1 {
			t.Errorf("a stateless tenure read the checkpoint: %d calls, want the 1 from before", n)
		}
		if n := s.Checkpoints.Load(); n != 1 {
			t.Errorf("no state was returned, and still it was saved: %d calls, want the 1 from before", n)
		}
	})
}

// Reading may take so long that the window closes before the work can begin.
func TestNoWorkBeginsUnderALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnReadCheckpoint = func(ctx context.Context, record backend.LeaseRecord) (backend.Checkpoint, error) {
			time.Sleep(ttl)
			return s.Backend.ReadCheckpoint(ctx, record)
		}
		lost := 0
		cfg := tenure.Config{Lease: newLease(t, s), OnLost: func(worklease.Token) { lost++ }}
		got := tenure.Run(t.Context(), workID, cfg, func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			t.Errorf("the work began in a context that ended with: %v", context.Cause(ctx))
			return nil, nil
		})
		if !errors.Is(got.Err, worklease.ErrLeaseWindowExhausted) || got.Exit != worklease.ExitNone {
			t.Errorf("result = %+v", got)
		}
		if lost != 0 {
			t.Error("OnLost was called for work that had not begun")
		}
		if s.Releases.Load()+s.Renewals.Load() != 0 {
			t.Error("a lost lease was renewed or released")
		}
	})
}

// refuses is a Lease that does not renew, as under a context that carries a transaction.
type refuses struct{ worklease.Lease }

func (refuses) StartRenewal(ctx context.Context, _ worklease.Token, _ ...worklease.RenewalOption) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(errStore)
	return ctx, func() {}
}

func TestNoWorkBeginsUnderALeaseThatIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := func(worklease.Token) { t.Error("a callback was called") }
		cfg := tenure.Config{
			Lease:  refuses{newLease(t, newStore())},
			OnHeld: func(_ context.Context, token worklease.Token) { never(token) },
			OnLost: never,
		}
		got := tenure.Run(t.Context(), workID, cfg, func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) {
			t.Error("the work began")
			return nil, nil
		})
		if !errors.Is(got.Err, errStore) || got.Exit != worklease.ExitAbandoned || got.Lost {
			t.Errorf("result = %+v", got)
		}
	})
}

// stopsHard is a Lease whose renewCtx ends when the renewal is stopped, as wrappers may have it.
type stopsHard struct{ worklease.Lease }

func (l stopsHard) StartRenewal(ctx context.Context, token worklease.Token, opts ...worklease.RenewalOption) (context.Context, func()) {
	renewCtx, stop := l.Lease.StartRenewal(ctx, token, opts...)
	renewCtx, cancel := context.WithCancel(renewCtx)
	return renewCtx, func() { cancel(); stop() }
}

func TestEndOfTheRenewalAloneIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 0
		cfg := tenure.Config{Lease: stopsHard{newLease(t, newStore())}, OnLost: func(worklease.Token) { lost++ }}
		got := tenure.Run(t.Context(), workID, cfg, func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) {
			return nil, nil
		})
		if got.Err != nil || got.Exit != worklease.ExitFinished || lost != 0 {
			t.Errorf("result = %+v, OnLost was called %d times", got, lost)
		}
	})
}
