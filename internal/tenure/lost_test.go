package tenure_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/tenure"
)

// lostAt counts the calls of an OnLost and keeps the time of the last.
type lostAt struct {
	times atomic.Int64
	token worklease.Token
	at    time.Time
}

func (l *lostAt) call(token worklease.Token) {
	l.token, l.at = token, time.Now()
	l.times.Add(1)
}

func TestOnLostIsCalledAtTheMomentOfTheLoss(t *testing.T) {
	const drain = 7 * time.Second
	for _, tc := range []struct {
		name  string
		lose  func(t *testing.T, s *storeAndToken)
		after time.Duration // from the start of the tenure, at the latest
		cause error
	}{
		{
			name: "window ran out", after: ttl, cause: worklease.ErrLeaseWindowExhausted,
			lose: func(_ *testing.T, s *storeAndToken) { s.down.Store(true) },
		}, {
			name: "fenced", after: ttl / 2, cause: worklease.ErrFenced,
			lose: func(t *testing.T, s *storeAndToken) { takeOver(t, s.Store, s.token) },
		}, {
			name: "released by the work", after: 0, cause: worklease.ErrLeaseWindowExhausted,
			lose: func(t *testing.T, s *storeAndToken) {
				if err := s.lease.Release(t.Context(), s.token, worklease.ExitAbandoned); err != nil {
					t.Error(err)
				}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStoreAndToken(t)
				var lost lostAt
				start := time.Now()
				got := tenure.Run(t.Context(), workID, tenure.Config{Lease: s.lease, OnLost: lost.call},
					func(ctx context.Context, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
						s.token = token
						tc.lose(t, s)
						awaitEnd(ctx)
						ended := time.Now()
						synctest.Wait()
						if lost.times.Load() != 1 || !lost.at.Equal(ended) || lost.token != token {
							t.Errorf("while the work drains OnLost was called %d times, at %v for %v, want once, at %v",
								lost.times.Load(), lost.at, lost.token, ended)
						}
						if ended.Sub(start) > tc.after {
							t.Errorf("the loss took %v to be noticed, want %v at most", ended.Sub(start), tc.after)
						}
						time.Sleep(drain)
						return []byte("too late"), errWork
					})
				if n := lost.times.Load(); n != 1 {
					t.Errorf("OnLost was called %d times", n)
				}
				if !errors.Is(got.Err, tc.cause) || got.Exit != worklease.ExitNone {
					t.Errorf("result = %+v, want an error matching %v", got, tc.cause)
				}
			})
		})
	}
}

func TestOnLostIsNotCalledForWorkThatReturnsInOrder(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(ctx context.Context, s *storeAndToken, cancel context.CancelCauseFunc) error
	}{
		{"at once", func(context.Context, *storeAndToken, context.CancelCauseFunc) error { return nil }},
		{"with an error", func(context.Context, *storeAndToken, context.CancelCauseFunc) error { return errWork }},
		{"after ctx ended", func(ctx context.Context, _ *storeAndToken, cancel context.CancelCauseFunc) error {
			cancel(errShutdown)
			awaitEnd(ctx)
			time.Sleep(3 * ttl)
			return context.Cause(ctx)
		}},
		{"after ctx ended with the cause of a loss", func(ctx context.Context, _ *storeAndToken, cancel context.CancelCauseFunc) error {
			cancel(worklease.ErrLeaseWindowExhausted)
			awaitEnd(ctx)
			time.Sleep(3 * ttl)
			return errWork
		}},
		{"just before the window closes", func(_ context.Context, s *storeAndToken, _ context.CancelCauseFunc) error {
			s.down.Store(true)
			time.Sleep(ttl - time.Nanosecond)
			s.down.Store(false)
			return nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStoreAndToken(t)
				var lost lostAt
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				got := tenure.Run(ctx, workID, tenure.Config{Lease: s.lease, OnLost: lost.call},
					func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
						return nil, tc.run(ctx, s, cancel)
					})
				if got.Exit == worklease.ExitNone {
					t.Errorf("no exit was recorded: %+v", got)
				}
				time.Sleep(10 * ttl)
				synctest.Wait()
				if n := lost.times.Load(); n != 0 {
					t.Errorf("OnLost was called %d times", n)
				}
			})
		})
	}
}

// Work that was prepared for too long does not begin, whatever else its context ended of.
func TestNoWorkBeginsUnderALeaseLostInOnHeld(t *testing.T) {
	for _, cause := range []error{nil, errShutdown} {
		synctest.Test(t, func(t *testing.T) {
			s := newStoreAndToken(t)
			s.down.Store(true)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var lost lostAt
			start := time.Now()
			cfg := tenure.Config{Lease: s.lease, OnLost: lost.call, OnHeld: func(context.Context, worklease.Token) {
				if cause != nil {
					cancel(cause)
				}
				time.Sleep(ttl)
			}}
			got := tenure.Run(ctx, workID, cfg, func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) {
				t.Error("the work began")
				return nil, nil
			})
			if !errors.Is(got.Err, worklease.ErrLeaseWindowExhausted) || !got.Lost || got.Exit != worklease.ExitNone {
				t.Errorf("result = %+v", got)
			}
			if lost.times.Load() != 1 || lost.at.Sub(start) != ttl {
				t.Errorf("OnLost was called %d times, last after %v", lost.times.Load(), lost.at.Sub(start))
			}
		})
	}
}

// News of the loss that come while the work returns are either in time or they are not: the result and
// OnLost say the same.
func TestOnLostAgreesWithTheResult(t *testing.T) {
	for range 500 {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			answer := make(chan struct{})
			s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error {
				<-answer
				return backend.ErrFenced
			}
			var lost lostAt
			got := tenure.Run(t.Context(), workID, tenure.Config{Lease: newLease(t, s), OnLost: lost.call},
				func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) {
					time.Sleep(ttl / 2)
					close(answer)
					return nil, nil
				})
			synctest.Wait()
			switch said := got.Err != nil; {
			case said && !errors.Is(got.Err, worklease.ErrFenced):
				t.Errorf("Err = %v", got.Err)
			case said != (lost.times.Load() == 1):
				t.Errorf("OnLost was called %d times, result: %+v", lost.times.Load(), got)
			}
		})
	}
}

func TestSlowOnLostDelaysTheReturnAlone(t *testing.T) {
	const slow = time.Minute
	synctest.Test(t, func(t *testing.T) {
		s := newStoreAndToken(t)
		s.down.Store(true)
		start := time.Now()
		var told, returned time.Duration
		cfg := tenure.Config{Lease: s.lease, OnLost: func(worklease.Token) { time.Sleep(slow) }}
		got := tenure.Run(t.Context(), workID, cfg, func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			awaitEnd(ctx)
			told = time.Since(start)
			time.Sleep(time.Second)
			returned = time.Since(start)
			return nil, nil
		})
		if told != ttl || returned != ttl+time.Second {
			t.Errorf("the work was told at %v and returned at %v", told, returned)
		}
		if took := time.Since(start); took != ttl+slow {
			t.Errorf("Run took %v, want to the end of OnLost at %v", took, ttl+slow)
		}
		if !errors.Is(got.Err, worklease.ErrLeaseWindowExhausted) {
			t.Errorf("Err = %v", got.Err)
		}
	})
}

func TestPanicOfOnLostComesUpInRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoreAndToken(t)
		s.down.Store(true)
		value := new(int)
		defer func() {
			if got := recover(); got != value {
				t.Errorf("recovered %v, want the very value", got)
			}
		}()
		cfg := tenure.Config{Lease: s.lease, OnLost: func(worklease.Token) { panic(value) }}
		got := tenure.Run(t.Context(), workID, cfg, untilDone)
		t.Errorf("Run returned %+v", got)
	})
}

func TestGoexitOfOnLostEndsTheGoroutineOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoreAndToken(t)
		s.down.Store(true)
		var returned atomic.Bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			cfg := tenure.Config{Lease: s.lease, OnLost: func(worklease.Token) { runtime.Goexit() }}
			tenure.Run(t.Context(), workID, cfg, untilDone)
			returned.Store(true)
		}()
		<-ended
		if returned.Load() {
			t.Error("Run returned as if nothing had happened")
		}
	})
}

// Whatever the work does last, OnLost has ended when its panic reaches the caller.
func TestPanicOfTheWorkWaitsForOnLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoreAndToken(t)
		s.down.Store(true)
		var ended atomic.Bool
		value := new(int)
		defer func() {
			if got := recover(); got != value {
				t.Errorf("recovered %v, want the very value", got)
			}
			if !ended.Load() {
				t.Error("OnLost still runs")
			}
		}()
		cfg := tenure.Config{Lease: s.lease, OnLost: func(worklease.Token) {
			time.Sleep(time.Minute)
			ended.Store(true)
		}}
		tenure.Run(t.Context(), workID, cfg, func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			awaitEnd(ctx)
			panic(value)
		})
	})
}

// lateNews is a context that tells its first child of its end at once, and the next ones never: those whom
// a context has are told one after the other, in no order.
type lateNews struct {
	context.Context
	done  chan struct{}
	first atomic.Bool
}

func (c *lateNews) Done() <-chan struct{} { return c.done }

func (c *lateNews) AfterFunc(f func()) (stop func() bool) {
	if c.first.CompareAndSwap(false, true) {
		return context.AfterFunc(c.Context, f)
	}
	return func() bool { return true }
}

// lateLease is a Lease with such a context.
type lateLease struct{ worklease.Lease }

func (l lateLease) StartRenewal(ctx context.Context, token worklease.Token, opts ...worklease.RenewalOption) (context.Context, func()) {
	ctx, stop := l.Lease.StartRenewal(ctx, token, opts...)
	late := &lateNews{Context: ctx, done: make(chan struct{})}
	context.AfterFunc(ctx, func() { close(late.done) })
	return late, stop
}

// The work may be told of the loss before anybody else is, and return before that.
func TestLossThatTheWorkKnowsOfIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoreAndToken(t)
		s.down.Store(true)
		var lost lostAt
		got := tenure.Run(t.Context(), workID, tenure.Config{Lease: lateLease{s.lease}, OnLost: lost.call}, untilDone)
		if n := lost.times.Load(); n != 1 {
			t.Errorf("OnLost was called %d times", n)
		}
		if !got.Lost || got.Exit != worklease.ExitNone || !errors.Is(got.Err, worklease.ErrLeaseWindowExhausted) {
			t.Errorf("result = %+v", got)
		}
	})
}
