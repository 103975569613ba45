package leader_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/leader"
)

func TestRunEndsWhenTheFunctionIsDone(t *testing.T) {
	for _, tc := range []struct {
		fn   error
		exit worklease.ExitMode
	}{{nil, worklease.ExitFinished}, {worklease.ErrRetire, worklease.ExitRetired}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			story := newStory()
			terms := 0
			err := leader.Run(t.Context(), leaseOf(t, s, "a"), workID, story.told(leader.Config{}), func(context.Context) error {
				if terms++; terms < 3 {
					return errWork
				}
				return tc.fn
			})
			wantErr(t, err)
			if terms != 3 || len(story.events) != 6 {
				t.Errorf("%d terms: %q", terms, story.events)
			}
			if got := exitFound(t, s); got != tc.exit {
				t.Errorf("the successor finds %v", got)
			}
		})
	}
}

// It is done, and to do it again would not record it any better.
func TestRunEndsWhenTheFunctionIsDoneButNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		releaseFails(errStore)(s)
		terms := 0
		err := leader.Run(t.Context(), leaseOf(t, s, "a"), workID, leader.Config{}, func(context.Context) error {
			terms++
			return nil
		})
		wantErr(t, err, errStore)
		if terms != 1 {
			t.Errorf("%d terms", terms)
		}
	})
}

func TestRunRefusesAWorkIDThatNoStoreTakes(t *testing.T) {
	s := newStore()
	for _, id := range []string{"", "a\x00b", "a\xff", strings.Repeat("x", 1025)} {
		err := leader.Run(t.Context(), leaseOf(t, s, "a"), id, leader.Config{}, neverCalled(t))
		if err == nil {
			t.Errorf("%q: no error", id)
		}
		wantErr(t, err, err)
	}
	if s.Acquires.Load() != 0 {
		t.Error("the store was asked")
	}
}

// No failure whatever makes Run spin or give up. The intervals are the config's, or a second.
func TestRunPacesEveryFailure(t *testing.T) {
	const span = 100 * time.Second
	fails := func(err error) func(context.Context) error {
		return func(context.Context) error { return err }
	}
	lost := func(ctx context.Context) error {
		awaitEnd(ctx)
		return nil // as one does who only waits for ctx
	}
	for _, tc := range []struct {
		name      string
		cfg       leader.Config
		acquire   error
		renew     error
		fn        func(context.Context) error
		low, high int64 // attempts in span
	}{
		{name: "held", acquire: backend.ErrLeaseHeld, low: 83, high: 101},
		{name: "held, every ten seconds", acquire: backend.ErrLeaseHeld, cfg: leader.Config{IdleInterval: 10 * time.Second}, low: 8, high: 11},
		{name: "store down", acquire: errStore, low: 83, high: 101},
		{name: "store down, every ten seconds", acquire: errStore, cfg: leader.Config{BackoffInterval: 10 * time.Second}, low: 8, high: 11},
		{name: "the driver's own time limit", acquire: context.DeadlineExceeded, low: 83, high: 101},
		{name: "fn fails", fn: fails(errWork), low: 83, high: 101},
		{name: "fn says that another lease is held", fn: fails(worklease.ErrLeaseHeld), low: 83, high: 101},
		{name: "fn says fenced", fn: fails(worklease.ErrFenced), low: 40, high: 101}, // the lease has to run out each time
		{name: "fenced by renewal", renew: backend.ErrFenced, fn: lost, low: 40, high: 101},
		{name: "window runs out", renew: errStore, fn: lost, low: 8, high: 11},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				if tc.acquire != nil {
					acquireFails(tc.acquire)(s)
				}
				if tc.renew != nil {
					s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error { return tc.renew }
				}
				fn := tc.fn
				if fn == nil {
					fn = neverCalled(t)
				}
				ctx, cancel := context.WithTimeout(t.Context(), span)
				defer cancel()
				if err := leader.Run(ctx, leaseOf(t, s, "a"), workID, tc.cfg, fn); !errors.Is(err, context.DeadlineExceeded) && err != nil {
					t.Errorf("error = %v", err)
				}
				if took := ctx.Err(); took == nil {
					t.Error("Run gave up")
				}
				if n := s.Acquires.Load(); n < tc.low || n > tc.high {
					t.Errorf("%d attempts in %v, want %d to %d", n, span, tc.low, tc.high)
				}
			})
		})
	}
}

func TestRunTellsOnErrorWhatItGoesOnFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		script := []error{errStore, backend.ErrLeaseHeld, nil, nil, backend.ErrLeaseHeld}
		s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
			if len(script) > 0 {
				err := script[0]
				script = script[1:]
				if err != nil {
					return backend.LeaseRecord{}, err
				}
			}
			return s.Backend.Acquire(ctx, workID, holderID, ttl)
		}
		var errs []error
		terms := []error{errWork, worklease.ErrLeaseHeld, nil}
		err := leader.Run(t.Context(), leaseOf(t, s, "a"), workID, leader.Config{
			OnError: func(_ context.Context, err error) { errs = append(errs, err) },
		}, func(context.Context) error {
			err := terms[0]
			terms = terms[1:]
			return err
		})
		wantErr(t, err)
		if len(errs) != 3 || !errors.Is(errs[0], errStore) || !errors.Is(errs[1], errWork) || !errors.Is(errs[2], worklease.ErrLeaseHeld) {
			t.Errorf("OnError was told %v", errs)
		}
	})
}

func TestRunEndsWithCtx(t *testing.T) {
	for _, tc := range []struct {
		name string
		fn   func(ctx context.Context) error
		want []error
	}{
		{"while the function stops in order", func(ctx context.Context) error { return context.Cause(ctx) }, []error{context.Canceled, errShutdown}},
		{"while the function says so", func(ctx context.Context) error { return ctx.Err() }, []error{context.Canceled}},
		{"while the function fails", func(context.Context) error { return errWork }, []error{context.Canceled, errWork}},
		{"while the function fails with what looks like held", func(context.Context) error { return worklease.ErrLeaseHeld }, []error{context.Canceled, worklease.ErrLeaseHeld}},
		{"while the function finishes", func(context.Context) error { return nil }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(errShutdown) })
				start := time.Now()
				err := leader.Run(ctx, leaseOf(t, newStore(), "a"), workID, leader.Config{}, func(ctx context.Context) error {
					awaitEnd(ctx)
					return tc.fn(ctx)
				})
				wantErr(t, err, tc.want...)
				if took := time.Since(start); took != time.Minute {
					t.Errorf("Run returned after %v", took)
				}
			})
		})
	}
}

// Three processes go through three outages longer than the TTL. Each time one leads again soon, and
// nobody has dropped out.
func TestOutagesLeaveEveryProcessStanding(t *testing.T) {
	const outage = 15 * time.Second
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		var leaders, terms atomic.Int64
		done := make(chan error)
		attempts := make([]atomic.Int64, 3)
		shared := newStore()
		for i, holder := range []string{"a", "b", "c"} {
			s := newStore()
			s.Backend = shared.Backend
			s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
				attempts[i].Add(1)
				if down.Load() {
					return backend.LeaseRecord{}, errStore
				}
				return s.Backend.Acquire(ctx, workID, holderID, ttl)
			}
			s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
				if down.Load() {
					return errStore
				}
				return s.Backend.Renew(ctx, record, ttl)
			}
			go func() {
				done <- leader.Run(ctx, leaseOf(t, s, holder), workID, leader.Config{}, func(ctx context.Context) error {
					terms.Add(1)
					if n := leaders.Add(1); n != 1 {
						t.Errorf("%d leaders", n)
					}
					defer leaders.Add(-1)
					awaitEnd(ctx)
					return ctx.Err()
				})
			}()
		}
		for range 3 {
			time.Sleep(2 * time.Second)
			if n := leaders.Load(); n != 1 {
				t.Errorf("%d leaders two seconds after the store came back", n)
			}
			down.Store(true)
			time.Sleep(outage)
			if n := leaders.Load(); n != 0 {
				t.Errorf("%d leaders while the store is down", n)
			}
			for i := range attempts {
				if attempts[i].Swap(0) == 0 {
					t.Errorf("process %d has dropped out", i)
				}
			}
			down.Store(false)
		}
		cancel()
		for range 3 {
			wantErr(t, <-done, context.Canceled)
		}
		if n := terms.Load(); n < 3 {
			t.Errorf("%d terms", n)
		}
	})
}

// A network that went silent must not keep a process from standing, once it is back: TCP may take a quarter
// of an hour to say so.
func TestSilentStoreKeepsNobodyFromStanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		start := time.Now()
		s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
			if time.Since(start) < 3*ttl {
				awaitEnd(ctx) // this call is never answered
				return backend.LeaseRecord{}, ctx.Err()
			}
			return s.Backend.Acquire(ctx, workID, holderID, ttl)
		}
		var h leader.Health
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		watched := make(chan struct{})
		defer func() { <-watched }()
		defer cancel()
		go func() {
			defer close(watched)
			for ctx.Err() == nil {
				if err := h.Check(ttl); err != nil {
					t.Errorf("health: %v", err)
				}
				time.Sleep(time.Second)
			}
		}()
		errs := 0
		wantErr(t, leader.Run(ctx, leaseOf(t, s, "a"), workID, leader.Config{
			Health:  &h,
			OnError: func(_ context.Context, err error) { errs++; wantErr(t, err, worklease.ErrLeaseWindowExhausted) },
		}, func(context.Context) error {
			cancel()
			return nil
		}))
		if took := time.Since(start); took > 4*ttl {
			t.Errorf("it led after %v", took)
		}
		if errs != 3 {
			t.Errorf("OnError was called %d times", errs)
		}
	})
}

// A function that fails at once in every process must not make the lead flap between them.
func TestFastFailuresDoNotFlap(t *testing.T) {
	const span = 10
	synctest.Test(t, func(t *testing.T) {
		shared := newStore()
		ctx, cancel := context.WithTimeout(t.Context(), span*time.Second)
		defer cancel()
		done := make(chan int64)
		for _, holder := range []string{"a", "b", "c"} {
			lease := leaseOf(t, shared, holder)
			go func() {
				var terms int64
				for ctx.Err() == nil {
					_ = leader.Elect(ctx, lease, workID, leader.Config{BackoffInterval: time.Second}, func(context.Context) error {
						terms++
						time.Sleep(time.Millisecond)
						return errWork
					})
				}
				done <- terms
			}()
		}
		for range 3 {
			if n := <-done; n == 0 || n > span {
				t.Errorf("%d terms in %d s", n, span)
			}
		}
	})
}

func TestRunThatEndsAsItIsRefusedSaysOnlyThatItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newStore()
		s.OnAcquire = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
			cancel()
			return backend.LeaseRecord{}, backend.ErrLeaseHeld
		}
		wantErr(t, leader.Run(ctx, leaseOf(t, s, "a"), workID, leader.Config{}, neverCalled(t)), context.Canceled)
	})
}
