package worklease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
)

// wakeStore tells what becomes free, unless it is deaf.
type wakeStore struct {
	*faulty.Store
	deaf         bool
	wakes, stops atomic.Int64
}

func (s *wakeStore) Wake(workID string) (<-chan struct{}, func()) {
	s.wakes.Add(1)
	if s.deaf {
		return nil, func() { s.stops.Add(1) }
	}
	woken, stop := s.Backend.(backend.Waker).Wake(workID)
	return woken, func() {
		s.stops.Add(1)
		stop()
	}
}

// heldFor makes another holder have workID for d.
func heldFor(t *testing.T, s *faulty.Store, workID string, d time.Duration) backend.LeaseRecord {
	t.Helper()
	record, err := s.Backend.Acquire(t.Context(), workID, "rival", d)
	succeeded(t, err)
	return record
}

func TestWaiterIsWokenWhenTheLeaseIsGivenUp(t *testing.T) {
	for name, giveUp := range map[string]func(context.Context, backend.Backend, backend.LeaseRecord) error{
		"release": func(ctx context.Context, b backend.Backend, r backend.LeaseRecord) error {
			return b.Release(ctx, r, backend.ExitFinished)
		},
		"forget": func(ctx context.Context, b backend.Backend, r backend.LeaseRecord) error { return b.Forget(ctx, r) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &wakeStore{Store: newStore()}
				record := heldFor(t, s.Store, "w", time.Hour)
				time.AfterFunc(time.Minute, func() {
					if err := giveUp(context.Background(), s.Backend, record); err != nil {
						t.Error(err)
					}
				})
				start := time.Now()
				lease := newLease(t, s, "a", time.Minute)
				_, err := lease.Acquire(t.Context(), "w", worklease.WithWaitForLease(), worklease.WithPollInterval(time.Hour))
				succeeded(t, err)
				if took := time.Since(start); took != time.Minute || s.Acquires.Load() != 2 {
					t.Errorf("acquired after %v with %d attempts", took, s.Acquires.Load())
				}
				if s.wakes.Load() != 1 || s.stops.Load() != 1 {
					t.Errorf("%d wake-ups were asked for, %d ended", s.wakes.Load(), s.stops.Load())
				}
			})
		})
	}
}

// A release that comes while the attempt before the wait is on its way is not missed.
func TestReleaseDuringTheFirstAttemptWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &wakeStore{Store: newStore()}
		record := heldFor(t, s.Store, "w", time.Hour)
		s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
			got, err := s.Backend.Acquire(ctx, workID, holderID, ttl)
			if err != nil {
				succeeded(t, s.Backend.Release(ctx, record, backend.ExitFinished))
			}
			return got, err
		}
		start := time.Now()
		_, err := newLease(t, s, "a", time.Minute).Acquire(t.Context(), "w", worklease.WithWaitForLease())
		succeeded(t, err)
		if took := time.Since(start); took != 0 {
			t.Errorf("acquired after %v", took)
		}
	})
}

func TestEachReleaseCostsOneAttemptHoweverManyWait(t *testing.T) {
	const waiters = 100
	synctest.Test(t, func(t *testing.T) {
		s := &wakeStore{Store: newStore()}
		record := heldFor(t, s.Store, "w", time.Hour)
		lease := newLease(t, s, "a", time.Minute)
		var all sync.WaitGroup
		start := time.Now()
		for range waiters {
			all.Go(func() {
				token, err := lease.Acquire(t.Context(), "w", worklease.WithWaitForLease(), worklease.WithPollInterval(time.Hour))
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				if err := lease.Release(t.Context(), token, worklease.ExitFinished); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		succeeded(t, s.Backend.Release(t.Context(), record, backend.ExitFinished))
		all.Wait()
		if n := s.Acquires.Load(); n != 2*waiters {
			t.Errorf("%d attempts, want one before each wait and one after", n)
		}
		if took := time.Since(start); took != waiters*time.Second {
			t.Errorf("all had it after %v", took)
		}
		if s.wakes.Load() != s.stops.Load() {
			t.Errorf("%d wake-ups were asked for, %d ended", s.wakes.Load(), s.stops.Load())
		}
	})
}

// Who is told and then fails was told in vain: the next is told.
func TestWakeUpThatFailsIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &wakeStore{Store: newStore()}
		record := heldFor(t, s.Store, "w", time.Hour)
		s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
			if s.Acquires.Load() == 3 {
				return backend.LeaseRecord{}, errStore
			}
			return s.Backend.Acquire(ctx, workID, holderID, ttl)
		}
		lease := newLease(t, s, "a", time.Hour)
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := lease.Acquire(t.Context(), "w", worklease.WithWaitForLease(), worklease.WithPollInterval(time.Hour))
				errs <- err
			}()
		}
		synctest.Wait()
		start := time.Now()
		succeeded(t, s.Backend.Release(t.Context(), record, backend.ExitFinished))
		first, second := <-errs, <-errs // at the same time, in any order
		if (first == nil) == (second == nil) {
			t.Errorf("errors %v and %v, want one", first, second)
		}
		mustMatch(t, errors.Join(first, second), errStore)
		if took := time.Since(start); took != 0 {
			t.Errorf("the second had it after %v", took)
		}
	})
}

// The next may be in the middle of an attempt, which was refused before the lease was free.
func TestWakeUpThatFailsWaitsForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &wakeStore{Store: newStore()}
		record := heldFor(t, s.Store, "w", time.Hour)
		s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
			n := s.Acquires.Load()
			if n == 3 {
				return backend.LeaseRecord{}, errStore
			}
			got, err := s.Backend.Acquire(ctx, workID, holderID, ttl)
			if n == 2 {
				time.Sleep(time.Second)
			}
			return got, err
		}
		lease := newLease(t, s, "a", time.Hour)
		errs := make(chan error, 2)
		wait := func() {
			_, err := lease.Acquire(t.Context(), "w", worklease.WithWaitForLease(), worklease.WithPollInterval(time.Hour))
			errs <- err
		}
		go wait()
		synctest.Wait()
		go wait()
		synctest.Wait()
		start := time.Now()
		succeeded(t, s.Backend.Release(t.Context(), record, backend.ExitFinished))
		mustMatch(t, <-errs, errStore)
		succeeded(t, <-errs)
		if took := time.Since(start); took != time.Second {
			t.Errorf("the second had it after %v", took)
		}
	})
}

func TestLostWakeUpCostsAPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &wakeStore{Store: newStore(), deaf: true}
		record := heldFor(t, s.Store, "w", time.Hour)
		start := time.Now()
		time.AfterFunc(time.Second, func() {
			if err := s.Backend.Release(context.Background(), record, backend.ExitFinished); err != nil {
				t.Error(err)
			}
		})
		_, err := newLease(t, s, "a", time.Minute).Acquire(t.Context(), "w", worklease.WithWaitForLease())
		succeeded(t, err)
		if took := time.Since(start); took < 2*time.Second || took > 2400*time.Millisecond {
			t.Errorf("acquired after %v, want a poll", took)
		}
	})
}

// However many wait, and for whatever, one look asks for all, and only what is free is tried.
func TestWaitersShareOneLook(t *testing.T) {
	const ids, held = 50, 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s := &faulty.Looking{Store: newStore()}
		lease := newLease(t, s, "a", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		var had, ended atomic.Int64
		for i := range ids {
			id := fmt.Sprint("w", i)
			heldFor(t, s.Store, id, held)
			for range 2 {
				go func() {
					_, err := lease.Acquire(ctx, id, worklease.WithWaitForLease())
					switch took := time.Since(start); {
					case err != nil:
						ended.Add(1)
					case took < held || took > held+120*time.Millisecond:
						t.Errorf("acquired after %v", took)
					default:
						had.Add(1)
					}
				}()
			}
		}
		time.Sleep(held - time.Millisecond)
		if n := s.Acquires.Load(); n != 2*ids {
			t.Errorf("%d attempts on leases that are held, want that before each wait", n)
		}
		if n := s.Looks.Load(); n < 249 || n > 300 || s.Most.Load() != ids {
			t.Errorf("%d looks in %v, at up to %d", n, held, s.Most.Load())
		}
		time.Sleep(time.Minute)
		if had.Load() != ids || s.Acquires.Load() != 3*ids {
			t.Errorf("%d of %d were acquired with %d attempts", had.Load(), ids, s.Acquires.Load())
		}
		cancel()
		synctest.Wait()
		n := s.Looks.Load()
		time.Sleep(time.Minute)
		if ended.Load() != ids || s.Looks.Load() != n {
			t.Errorf("%d waits ended, and then there were %d looks", ended.Load(), s.Looks.Load()-n)
		}
	})
}

func TestLooksThatFailCostAPoll(t *testing.T) {
	for name, tc := range map[string]struct {
		free func(ctx context.Context, workIDs []string) ([]string, error)
		most int64
	}{
		"error":       {func(context.Context, []string) ([]string, error) { return nil, errStore }, 2},
		"unsupported": {func(context.Context, []string) ([]string, error) { return nil, errors.ErrUnsupported }, 1},
		"panic":       {func(context.Context, []string) ([]string, error) { panic("look") }, 2},
		"hangs": {func(ctx context.Context, _ []string) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &faulty.Looking{Store: newStore(), OnFree: tc.free}
				heldFor(t, s.Store, "w", time.Second)
				start := time.Now()
				_, err := newLease(t, s, "a", time.Minute).Acquire(t.Context(), "w", worklease.WithWaitForLease())
				succeeded(t, err)
				if took := time.Since(start); took < 2*time.Second || took > 2400*time.Millisecond {
					t.Errorf("acquired after %v, want a poll", took)
				}
				if n := s.Looks.Load(); n > tc.most {
					t.Errorf("%d looks", n)
				}
			})
		})
	}
}

func TestPollIntervalBelowThatOfTheLooksIsKept(t *testing.T) {
	for range 50 { // looks and polls fall differently each time
		synctest.Test(t, func(t *testing.T) {
			s := &faulty.Looking{Store: newStore()}
			heldFor(t, s.Store, "w", time.Second)
			start := time.Now()
			_, err := newLease(t, s, "a", time.Minute).Acquire(t.Context(), "w", worklease.WithWaitForLease(), worklease.WithPollInterval(10*time.Millisecond))
			succeeded(t, err)
			if took := time.Since(start); took > time.Second+12*time.Millisecond {
				t.Errorf("acquired after %v", took)
			}
		})
	}
}
