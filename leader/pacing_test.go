package leader_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/leader"
)

func acquireFails(err error) func(*faulty.Store) {
	return func(s *faulty.Store) {
		s.OnAcquire = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
			return backend.LeaseRecord{}, err
		}
	}
}

func releaseFails(err error) func(*faulty.Store) {
	return func(s *faulty.Store) {
		s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error { return err }
	}
}

func TestElectPauses(t *testing.T) {
	const idle, backoff = time.Minute, time.Hour
	for _, tc := range []struct {
		name      string
		cfg       leader.Config
		fault     func(*faulty.Store)
		fn        func(context.Context) error
		low, high time.Duration // high 0: exactly low
	}{
		{name: "held", cfg: leader.Config{IdleInterval: idle, BackoffInterval: backoff}, fault: acquireFails(backend.ErrLeaseHeld), low: idle, high: idle * 6 / 5},
		{name: "held, by default", fault: acquireFails(backend.ErrLeaseHeld), low: time.Second, high: 1200 * time.Millisecond},
		{name: "held, a negative interval", cfg: leader.Config{IdleInterval: -1}, fault: acquireFails(backend.ErrLeaseHeld), low: time.Second, high: 1200 * time.Millisecond},
		{name: "store down", cfg: leader.Config{BackoffInterval: backoff}, fault: acquireFails(errStore), low: backoff},
		{name: "store down, by default", fault: acquireFails(errStore)},
		{name: "a context's error", cfg: leader.Config{BackoffInterval: backoff}, fault: acquireFails(context.DeadlineExceeded)},
		{name: "finished", cfg: leader.Config{BackoffInterval: backoff}, fn: returns(nil), low: backoff},
		{name: "retired", cfg: leader.Config{BackoffInterval: backoff}, fn: returns(worklease.ErrRetire), low: backoff},
		{name: "failed", cfg: leader.Config{BackoffInterval: backoff}, fn: returns(errWork), low: backoff},
		{name: "failed, by default", fn: returns(errWork)},
		{name: "failed with what looks like held", cfg: leader.Config{BackoffInterval: backoff}, fn: returns(worklease.ErrLeaseHeld), low: backoff},
		{name: "failed with a context's error", cfg: leader.Config{BackoffInterval: backoff}, fn: returns(context.Canceled), low: backoff},
		{name: "not released", cfg: leader.Config{BackoffInterval: backoff}, fn: returns(nil), fault: releaseFails(errStore), low: backoff},
		{name: "fenced", cfg: leader.Config{BackoffInterval: backoff}, fn: returns(worklease.ErrFenced)},
		{name: "fenced in the release", cfg: leader.Config{BackoffInterval: backoff}, fn: returns(nil), fault: releaseFails(backend.ErrFenced)},
		{name: "window ran out", cfg: leader.Config{BackoffInterval: backoff}, low: ttl + backoff,
			fault: func(s *faulty.Store) { s.OnRenew = renewFails },
			fn: func(ctx context.Context) error {
				awaitEnd(ctx)
				return nil
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				if tc.fault != nil {
					tc.fault(s)
				}
				fn := tc.fn
				if fn == nil {
					fn = neverCalled(t)
				}
				start := time.Now()
				_ = leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, tc.cfg, fn)
				took := time.Since(start)
				if tc.high == 0 && took != tc.low || tc.high != 0 && (took < tc.low || took >= tc.high) {
					t.Errorf("Elect took %v, want %v (to below %v)", took, tc.low, tc.high)
				}
			})
		})
	}
}

func TestIdlePausesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		acquireFails(backend.ErrLeaseHeld)(s)
		lease := leaseOf(t, s, "a")
		var low, high bool
		for range 200 {
			start := time.Now()
			_ = leader.Elect(t.Context(), lease, workID, leader.Config{}, neverCalled(t))
			took := time.Since(start)
			low, high = low || took < 1050*time.Millisecond, high || took > 1150*time.Millisecond
		}
		if !low || !high {
			t.Error("200 pauses left a quarter of the range out")
		}
	})
}

// A leader that fails makes room first, and pauses then.
func TestTheLeaseIsFreeDuringThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		done := make(chan error, 1)
		go func() {
			done <- leader.Elect(t.Context(), leaseOf(t, s, "a"), workID, leader.Config{BackoffInterval: time.Minute}, returns(errWork))
		}()
		synctest.Wait()
		if got := exitFound(t, s); got != worklease.ExitAbandoned {
			t.Errorf("the successor finds %v", got)
		}
		select {
		case err := <-done:
			t.Errorf("Elect has returned already: %v", err)
		default:
		}
		wantErr(t, <-done, errWork)
	})
}

func TestPausesEndWithCtx(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault func(*faulty.Store)
		opts  []worklease.AcquireOption
		want  []error // of Elect
		run   []error // of Run
	}{
		{name: "held", fault: acquireFails(backend.ErrLeaseHeld), want: []error{worklease.ErrLeaseHeld}, run: []error{context.DeadlineExceeded}},
		{name: "store down", fault: acquireFails(errStore), want: []error{errStore}, run: []error{context.DeadlineExceeded}},
		{name: "failed", want: []error{errWork}, run: []error{context.DeadlineExceeded}},
		{name: "waiting for the lease", fault: acquireFails(backend.ErrLeaseHeld), opts: []worklease.AcquireOption{worklease.WithWaitForLease()},
			want: []error{context.DeadlineExceeded}, run: []error{context.DeadlineExceeded}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				if tc.fault != nil {
					tc.fault(s)
				}
				cfg := leader.Config{IdleInterval: time.Hour, BackoffInterval: time.Hour, AcquireOptions: tc.opts}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				wantErr(t, leader.Elect(ctx, leaseOf(t, s, "a"), workID, cfg, returns(errWork)), tc.want...)
				if took := time.Since(start); took != time.Minute {
					t.Errorf("Elect returned after %v", took)
				}
				ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start = time.Now()
				wantErr(t, leader.Run(ctx, leaseOf(t, s, "a"), workID, cfg, returns(errWork)), tc.run...)
				if took := time.Since(start); took != time.Minute {
					t.Errorf("Run returned after %v", took)
				}
			})
		})
	}
}
