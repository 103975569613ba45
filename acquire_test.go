package worklease_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/internal/faulty"
)

func TestAcquireMakesOneAttempt(t *testing.T) {
	b := memory.New()
	lease := newLease(t, b, "a", time.Hour)
	token := acquire(t, lease, "w")
	for name, l := range map[string]worklease.Lease{"another holder": newLease(t, b, "b", time.Hour), "the same holder ID": lease} {
		t.Run(name, func(t *testing.T) {
			refused, err := l.Acquire(t.Context(), "w")
			mustMatch(t, err, worklease.ErrLeaseHeld)
			if refused != (worklease.Token{}) {
				t.Errorf("there is a token beside the error: %v", refused)
			}
			held, ok := errors.AsType[*worklease.HeldError](err)
			if !ok || held.WorkID != "w" || held.HolderID != "a" || !held.ExpiresAt.Equal(token.ExpiresAt()) {
				t.Errorf("held by %+v", held)
			}
			if strings.Contains(err.Error(), "re-entrant") != (l == lease) {
				t.Errorf("who restarts under the same holder ID is told %q", err)
			}
		})
	}
}

func TestWaitingAcquireGetsTheLeaseWithinAPollOfItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		first, second := newLease(t, b, "a", time.Hour), newLease(t, b, "b", time.Hour)
		token := acquire(t, first, "w")
		time.AfterFunc(30*time.Second, func() {
			if err := first.Release(t.Context(), token, worklease.ExitFinished); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		if _, err := second.Acquire(t.Context(), "w", worklease.WithWaitForLease()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited < 30*time.Second || waited >= 32400*time.Millisecond {
			t.Errorf("waited for %v", waited)
		}
	})
}

func TestPollIntervalIsJittered(t *testing.T) {
	for name, tc := range map[string]struct {
		opts     []worklease.AcquireOption
		interval time.Duration
	}{
		"default":  {nil, 2 * time.Second},
		"set":      {[]worklease.AcquireOption{worklease.WithPollInterval(500 * time.Millisecond)}, 500 * time.Millisecond},
		"zero":     {[]worklease.AcquireOption{worklease.WithPollInterval(0)}, 2 * time.Second},
		"negative": {[]worklease.AcquireOption{nil, worklease.WithPollInterval(-1), nil}, 2 * time.Second},
		"maximal":  {[]worklease.AcquireOption{worklease.WithPollInterval(math.MaxInt64)}, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []time.Time
				s := newStore()
				s.OnAcquire = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
					asked = append(asked, time.Now())
					return backend.LeaseRecord{}, backend.ErrLeaseHeld
				}
				lease := newLease(t, s, "a", time.Hour)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := lease.Acquire(ctx, "w", append(tc.opts, worklease.WithWaitForLease())...)
				mustMatch(t, err, context.DeadlineExceeded)
				if tc.interval == math.MaxInt64 {
					if len(asked) != 1 {
						t.Errorf("asked %d times", len(asked))
					}
					return
				}
				waits := gaps(asked)
				for _, wait := range waits {
					if wait < tc.interval || wait >= tc.interval*12/10 {
						t.Errorf("asked again after %v", wait)
					}
				}
				if most := slices.Max(waits); most < tc.interval*11/10 {
					t.Errorf("never waited for longer than %v", most)
				}
			})
		})
	}
}

func TestWaitingAcquireEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		acquire(t, newLease(t, b, "a", time.Hour), "w")
		lease := newLease(t, b, "b", time.Hour)

		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		_, err := lease.Acquire(ctx, "w", worklease.WithWaitForLease(), worklease.WithPollInterval(time.Hour))
		mustMatch(t, err, context.DeadlineExceeded)
		mustNotMatch(t, err, worklease.ErrLeaseHeld)
		if waited := time.Since(start); waited != 2*time.Second {
			t.Errorf("waited for %v", waited)
		}

		done, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = lease.Acquire(done, "w", worklease.WithWaitForLease())
		mustMatch(t, err, context.Canceled)
		mustNotMatch(t, err, worklease.ErrLeaseHeld)
	})
}

func TestWaitingAcquireReturnsOtherErrorsAtOnce(t *testing.T) {
	s := newStore()
	s.OnAcquire = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
		return backend.LeaseRecord{}, errStore
	}
	_, err := newLease(t, s, "a", time.Hour).Acquire(t.Context(), "w", worklease.WithWaitForLease())
	mustMatch(t, err, errStore)
	mustNotMatch(t, err, worklease.ErrLeaseHeld)
}

func TestHasWaitForLease(t *testing.T) {
	for name, tc := range map[string]struct {
		opts []worklease.AcquireOption
		want bool
	}{
		"nil":         {nil, false},
		"nil options": {[]worklease.AcquireOption{nil, nil}, false},
		"other":       {[]worklease.AcquireOption{worklease.WithPollInterval(time.Second)}, false},
		"alone":       {[]worklease.AcquireOption{worklease.WithWaitForLease()}, true},
		"among":       {[]worklease.AcquireOption{nil, worklease.WithWaitForLease(), worklease.WithPollInterval(1)}, true},
	} {
		if got := worklease.HasWaitForLease(tc.opts); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAcquireWaitsForAnAnswerNoLongerThanTheTTL(t *testing.T) {
	const ttl = 10 * time.Second
	for _, tc := range []struct {
		name    string
		timeout time.Duration // the caller's
		opts    []worklease.AcquireOption
		after   time.Duration
		is, not error
	}{
		{"silent store", time.Hour, nil, ttl, worklease.ErrLeaseWindowExhausted, context.DeadlineExceeded},
		{"silent store, waiting", time.Hour, []worklease.AcquireOption{worklease.WithWaitForLease()}, ttl, worklease.ErrLeaseWindowExhausted, context.DeadlineExceeded},
		{"the caller's deadline is sooner", ttl - time.Second, nil, ttl - time.Second, context.DeadlineExceeded, worklease.ErrLeaseWindowExhausted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				s.OnAcquire = func(ctx context.Context, _, _ string, _ time.Duration) (backend.LeaseRecord, error) {
					<-ctx.Done()
					return backend.LeaseRecord{}, errors.Join(errStore, ctx.Err())
				}
				ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
				defer cancel()
				start := time.Now()
				_, err := newLease(t, s, "a", ttl).Acquire(ctx, "w", tc.opts...)
				mustMatch(t, err, tc.is)
				mustNotMatch(t, err, tc.not)
				if took := time.Since(start); took != tc.after {
					t.Errorf("Acquire took %v", took)
				}
				if !strings.Contains(err.Error(), errStore.Error()) {
					t.Errorf("the text does not say what the store said: %v", err)
				}
			})
		})
	}
}

func TestAnswerAfterExactlyTheTTLIsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
			defer time.Sleep(time.Second)
			return s.Backend.Acquire(ctx, workID, holderID, ttl)
		}
		_, err := newLease(t, s, "a", time.Second).Acquire(t.Context(), "w")
		mustMatch(t, err, worklease.ErrLeaseWindowExhausted)
	})
}

func TestLateLeaseIsGivenBackThoughTheCallerHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
			time.Sleep(3 * time.Second)
			return s.Backend.Acquire(context.WithoutCancel(ctx), workID, holderID, ttl)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		_, err := newLease(t, s, "a", 2*time.Second).Acquire(ctx, "w")
		mustMatch(t, err, worklease.ErrLeaseWindowExhausted)
		s.OnAcquire = nil
		acquire(t, newLease(t, s, "b", time.Second), "w")
	})
}

func TestAnswerThatTookLongerThanTheTTLIsNoLease(t *testing.T) {
	for name, tc := range map[string]struct {
		release func(s *faulty.Store) error
		exit    worklease.ExitMode
	}{
		"and is given back":               {nil, worklease.ExitAbandoned},
		"also if giving back fails":       {func(*faulty.Store) error { return errStore }, worklease.ExitExpired},
		"also if it is over in the store": {func(*faulty.Store) error { return worklease.ErrLeaseExpired }, worklease.ExitExpired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
					time.Sleep(3 * time.Second) // for a row lock: the store counts from afterwards
					return s.Backend.Acquire(context.WithoutCancel(ctx), workID, holderID, ttl)
				}
				if tc.release != nil {
					s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error { return tc.release(s) }
				}
				seen := &recorder{}
				token, err := newObserved(t, s, "a", time.Second, seen).Acquire(t.Context(), "w")
				mustMatch(t, err, worklease.ErrLeaseWindowExhausted)
				mustNotMatch(t, err, worklease.ErrLeaseHeld, worklease.ErrLeaseExpired)
				if token != (worklease.Token{}) {
					t.Errorf("got the token %v", token)
				}
				if e := eventsOf[worklease.AcquireEvent](seen); len(e) != 1 || e[0].Token != (worklease.Token{}) || e[0].Err == nil {
					t.Errorf("the observer saw %+v", e)
				}

				if tc.exit == worklease.ExitExpired {
					time.Sleep(time.Second)
				}
				s.OnAcquire = nil
				next := newLease(t, s, "b", time.Second)
				found, err := next.ReadCheckpoint(t.Context(), acquire(t, next, "w"))
				if err != nil || found.PrevExit != tc.exit {
					t.Errorf("the next holder finds %v, %v", found.PrevExit, err)
				}
			})
		})
	}
}
