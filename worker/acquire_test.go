package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/worker"
)

func TestRunOfHeldWorkSaysWhoHoldsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner, s := newHolder(t, neverCalled(t))
		if _, err := leaseOf(t, s.Backend, "rival").Acquire(t.Context(), workID); err != nil {
			t.Fatal(err)
		}
		err := runner.Run(t.Context(), workID)
		wantErr(t, err, worklease.ErrLeaseHeld)
		held, ok := errors.AsType[*worklease.HeldError](err)
		if !ok || held.WorkID != workID || held.HolderID != "rival" || !held.ExpiresAt.Equal(time.Now().Add(ttl)) {
			t.Errorf("HeldError = %+v", held)
		}
		if n := s.Acquires.Load(); n != 1 {
			t.Errorf("asked %d times without being told to wait", n)
		}
		time.Sleep(ttl)
		wantFound(t, inherit(t, s), "", worklease.ExitExpired, "rival")
	})
}

func TestRunThatCannotAcquireLeavesNoTrace(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tc := range []struct {
		name   string
		ctx    context.Context
		workID string
		fault  error
		errs   []error
	}{
		{name: "the store fails", ctx: context.Background(), workID: workID, fault: errStore, errs: []error{errStore}},
		{name: "ctx has ended", ctx: cancelled, workID: workID, errs: []error{context.Canceled}},
		{name: "the work ID is empty", ctx: context.Background()},
		{name: "the work ID is too long", ctx: context.Background(), workID: strings.Repeat("x", 1025)},
		{name: "ctx is nil", workID: workID},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runner, s := newHolder(t, neverCalled(t))
			if tc.fault != nil {
				s.OnAcquire = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
					return backend.LeaseRecord{}, tc.fault
				}
			}
			err := runner.Run(tc.ctx, tc.workID)
			if err == nil {
				t.Fatal("no error")
			}
			if len(tc.errs) > 0 {
				wantErr(t, err, tc.errs...)
			} else {
				wantErr(t, err, err) // plain: it matches nothing
			}
			if n := s.Reads.Load() + s.Renewals.Load() + s.Releases.Load() + s.Checkpoints.Load(); n != 0 {
				t.Errorf("the store got %d further calls", n)
			}
			wantFound(t, inherit(t, s), "", worklease.ExitNone, "")
		})
	}
}

func TestWaitForTheLeaseEndsWithCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		if _, err := s.Backend.Acquire(t.Context(), workID, "rival", time.Hour); err != nil {
			t.Fatal(err)
		}
		runner := newRunner(t, worker.RunnerConfig{
			Lease: leaseOf(t, s, "a"), WorkFn: neverCalled(t),
			AcquireOptions: []worklease.AcquireOption{worklease.WithWaitForLease()},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		wantErr(t, runner.Run(ctx, workID), context.DeadlineExceeded)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("Run returned after %v", took)
		}
	})
}

func TestWaitForTheLeaseEndsWhenItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		lease := leaseOf(t, s.Backend, "rival")
		token, err := lease.Acquire(t.Context(), workID)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		time.AfterFunc(5*time.Second, func() {
			if err := lease.Release(context.Background(), token, worklease.ExitAbandoned); err != nil {
				t.Error(err)
			}
		})
		runner := newRunner(t, worker.RunnerConfig{
			Lease: leaseOf(t, s, "a"),
			WorkFn: func(_ context.Context, _ worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
				if waited := time.Since(start); waited < 5*time.Second || waited > 6200*time.Millisecond {
					t.Errorf("the work began after %v", waited)
				}
				wantFound(t, prior, "", worklease.ExitAbandoned, "rival")
				return nil, nil
			},
			AcquireOptions: []worklease.AcquireOption{
				nil, worklease.WithWaitForLease(), worklease.WithPollInterval(time.Second), nil,
			},
			RenewalOptions: []worklease.RenewalOption{nil, worklease.WithRenewalInterval(time.Second)},
		})
		wantErr(t, runner.Run(t.Context(), workID))
	})
}

// The time that an Acquire waits counts against the TTL: the store may be slow before it answers, when
// the lease still runs, or afterwards, when it has lapsed already.
func TestNoWorkBeginsUnderALeaseThatCameTooLate(t *testing.T) {
	for _, tc := range []struct {
		name          string
		before, after time.Duration
	}{
		{"a lock was waited for", 3 * ttl, 0},
		{"the answer was under way", 0, 3 * ttl},
		{"exactly the TTL", ttl / 2, ttl / 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runner, s := newHolder(t, neverCalled(t))
				s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
					time.Sleep(tc.before)
					record, err := s.Backend.Acquire(ctx, workID, holderID, ttl)
					time.Sleep(tc.after)
					return record, err
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				wantErr(t, runner.Run(ctx, workID), worklease.ErrLeaseWindowExhausted)
				inherit(t, s)
				wantRenewalOver(t, s)
			})
		})
	}
}
