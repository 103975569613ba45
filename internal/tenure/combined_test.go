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

func newCombining() *faulty.Combining { return &faulty.Combining{Store: newStore()} }

// calls are how often each call was made that begins or ends a tenure.
type calls struct{ acquireRead, acquire, read, checkpointRelease, checkpoint, release int64 }

func callsOf(s *faulty.Combining) calls {
	return calls{
		s.AcquireReads.Load(), s.Acquires.Load(), s.Reads.Load(),
		s.CheckpointReleases.Load(), s.Checkpoints.Load(), s.Releases.Load(),
	}
}

func returning(state []byte, err error) tenure.Work {
	return func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) { return state, err }
}

// wrapped is a Lease that sees each call, since it embeds the interface alone.
type wrapped struct{ worklease.Lease }

func TestTenureMakesTwoCallsWhereTheStoreCan(t *testing.T) {
	unsupported := func(s *faulty.Combining) {
		s.OnAcquireRead = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
			return backend.LeaseRecord{}, backend.Checkpoint{}, errors.ErrUnsupported
		}
		s.OnCheckpointRelease = func(context.Context, backend.LeaseRecord, []byte, backend.ExitMode) error {
			return errors.ErrUnsupported
		}
	}
	for _, tc := range []struct {
		name      string
		fault     func(*faulty.Combining)
		wrap      bool
		stateless bool
		work      tenure.Work
		want      calls
		exit      worklease.ExitMode // zero: finished
		err       error
	}{
		{name: "without state", work: returning(nil, nil), want: calls{acquireRead: 1, release: 1}},
		{name: "with state", work: returning([]byte("new"), nil), want: calls{acquireRead: 1, checkpointRelease: 1}},
		{name: "clearing the state", work: returning([]byte{}, nil), want: calls{acquireRead: 1, checkpointRelease: 1}},
		{
			name: "that retires", work: returning([]byte("new"), worklease.ErrRetire), exit: worklease.ExitRetired,
			want: calls{acquireRead: 1, checkpointRelease: 1},
		}, {
			name: "that fails", work: returning([]byte("new"), errWork), exit: worklease.ExitAbandoned, err: errWork,
			want: calls{acquireRead: 1, checkpointRelease: 1},
		},
		{name: "that nobody reads", stateless: true, work: returning(nil, nil), want: calls{acquire: 1, release: 1}},
		{
			name: "through a wrapper", wrap: true, work: returning([]byte("new"), nil),
			want: calls{acquire: 1, read: 1, checkpoint: 1, release: 1},
		}, {
			name: "on a store that says it cannot", fault: unsupported, work: returning([]byte("new"), nil),
			want: calls{acquireRead: 1, acquire: 1, read: 1, checkpointRelease: 1, checkpoint: 1, release: 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCombining()
				leave(t, s.Backend, []byte("old"))
				if tc.fault != nil {
					tc.fault(s)
				}
				lease := newLease(t, s)
				if tc.wrap {
					lease = wrapped{lease}
				}
				var prior worklease.Checkpoint
				got := tenure.Run(t.Context(), workID, tenure.Config{Lease: lease, Stateless: tc.stateless},
					func(ctx context.Context, token worklease.Token, p worklease.Checkpoint) ([]byte, error) {
						prior = p
						return tc.work(ctx, token, p)
					})
				exit := max(tc.exit, worklease.ExitFinished)
				if got.Err != tc.err || got.Exit != exit {
					t.Errorf("result = %+v", got)
				}
				if n := callsOf(s); n != tc.want {
					t.Errorf("calls = %+v, want %+v", n, tc.want)
				}
				if !tc.stateless && (string(prior.State) != "old" || prior.PrevExit != worklease.ExitAbandoned || prior.PrevHolderID != "before") {
					t.Errorf("prior = %+v", prior)
				}
				want := "old"
				if state, _ := tc.work(nil, worklease.Token{}, prior); state != nil {
					want = string(state)
				}
				if left := found(t, s.Backend); string(left.State) != want || left.PrevExit != exit {
					t.Errorf("the successor finds %+v, want %q and %v", left, want, exit)
				}
			})
		})
	}
}

// leave is a tenure of another holder before.
func leave(t *testing.T, b backend.Backend, state []byte) {
	t.Helper()
	record, err := b.Acquire(t.Context(), workID, "before", ttl)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Checkpoint(t.Context(), record, state, ttl); err != nil {
		t.Fatal(err)
	}
	if err := b.Release(t.Context(), record, backend.ExitAbandoned); err != nil {
		t.Fatal(err)
	}
}

// found is what the successor finds, once it can have the lease.
func found(t *testing.T, b backend.Backend) backend.Checkpoint {
	t.Helper()
	record, err := b.Acquire(t.Context(), workID, "after", ttl)
	if errors.Is(err, backend.ErrLeaseHeld) {
		time.Sleep(ttl)
		record, err = b.Acquire(t.Context(), workID, "after", ttl)
	}
	if err != nil {
		t.Fatal(err)
	}
	left, err := b.ReadCheckpoint(t.Context(), record)
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func TestFailureOfACombinedCall(t *testing.T) {
	pass := func(s *faulty.Combining, ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
		return s.Backend.(backend.CheckpointReleaser).CheckpointRelease(ctx, record, state, mode)
	}
	ends := func(f func(s *faulty.Combining, ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error) func(*faulty.Combining) {
		return func(s *faulty.Combining) {
			s.OnCheckpointRelease = func(ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
				return f(s, ctx, record, state, mode)
			}
		}
	}
	fails := func(err error) func(*faulty.Combining) {
		return ends(func(*faulty.Combining, context.Context, backend.LeaseRecord, []byte, backend.ExitMode) error {
			return err
		})
	}
	for _, tc := range []struct {
		name     string
		fault    func(*faulty.Combining)
		err      error // of the work
		held     bool
		exit     worklease.ExitMode // recorded, as the tenure says
		lost     bool
		is       []error
		state    string // that the successor finds, and how the tenure ended
		prevExit worklease.ExitMode
		releases int64
	}{
		{
			name: "not acquired", is: []error{errStore}, state: "old", prevExit: worklease.ExitAbandoned,
			fault: func(s *faulty.Combining) {
				s.OnAcquireRead = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
					return backend.LeaseRecord{}, backend.Checkpoint{}, errStore
				}
			},
		}, {
			name: "fenced", fault: fails(backend.ErrFenced), held: true, lost: true, is: []error{worklease.ErrFenced},
			state: "old", prevExit: worklease.ExitExpired,
		}, {
			name: "not carried out", fault: fails(errStore), held: true, exit: worklease.ExitAbandoned, is: []error{errStore},
			state: "old", prevExit: worklease.ExitAbandoned, releases: 1,
		}, {
			name: "not carried out, of work that failed", err: errWork, fault: fails(errStore), held: true,
			exit: worklease.ExitAbandoned, is: []error{errStore, errWork},
			state: "old", prevExit: worklease.ExitAbandoned, releases: 1,
		}, {
			// The release as abandoned changes nothing then, and no success is reported of what nobody knows.
			name: "carried out, and the answer lost", held: true, lost: true, is: []error{errStore, worklease.ErrLeaseExpired},
			fault: ends(func(s *faulty.Combining, ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
				if err := pass(s, ctx, record, state, mode); err != nil {
					return err
				}
				return errStore
			}),
			state: "new", prevExit: worklease.ExitFinished, releases: 1,
		}, {
			name: "carried out after the release", held: true, exit: worklease.ExitAbandoned, is: []error{context.DeadlineExceeded},
			fault: ends(func(s *faulty.Combining, ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
				time.Sleep(tenure.DefaultCleanupTimeout) // whatever ctx says
				return pass(s, context.WithoutCancel(ctx), record, state, mode)
			}),
			state: "old", prevExit: worklease.ExitAbandoned, releases: 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCombining()
				leave(t, s.Backend, []byte("old"))
				tc.fault(s)
				got := tenure.Run(t.Context(), workID, tenure.Config{Lease: newLease(t, s)}, returning([]byte("new"), tc.err))
				time.Sleep(tenure.DefaultCleanupTimeout)
				synctest.Wait()
				if held := got.Token != (worklease.Token{}); held != tc.held || got.Exit != tc.exit || got.Lost != tc.lost {
					t.Errorf("result = %+v", got)
				}
				for _, want := range tc.is {
					if !errors.Is(got.Err, want) {
						t.Errorf("Err = %v, does not match %v", got.Err, want)
					}
				}
				if n := callsOf(s); n.release != tc.releases || n.acquire+n.read+n.checkpoint != 0 {
					t.Errorf("calls = %+v", n)
				}
				if left := found(t, s.Backend); string(left.State) != tc.state || left.PrevExit != tc.prevExit {
					t.Errorf("the successor finds %q, %v", left.State, left.PrevExit)
				}
			})
		})
	}
}

// A store may come back long after it was given up. For the race detector: it finds nobody who still listens.
func TestAnswerOfASaveThatWasGivenUpIsNobodys(t *testing.T) {
	for _, late := range []error{nil, errStore} {
		synctest.Test(t, func(t *testing.T) {
			s := newCombining()
			answered := make(chan struct{})
			s.OnCheckpointRelease = func(context.Context, backend.LeaseRecord, []byte, backend.ExitMode) error {
				defer close(answered)
				time.Sleep(tenure.DefaultCleanupTimeout - tenure.DefaultCleanupTimeout/4) // until it is given up, at that very moment
				return late
			}
			got := tenure.Run(t.Context(), workID, tenure.Config{Lease: newLease(t, s)}, returning([]byte("new"), errWork))
			if got.Err == nil {
				t.Errorf("result = %+v", got)
			}
			<-answered
		})
	}
}
