package integration_test

import (
	"context"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/leader"
)

// A pause is seen by its lower bound, or by the lack of one: what returns although the interval is an
// hour did not pause. Exact lengths are pinned in fake time, in package leader.
func describePacing(w *world) {
	const pause = 300 * time.Millisecond
	held := func(s *faulty.Store) {
		_, err := s.Backend.Acquire(context.Background(), w.work, "rival", ttl)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
	down := func(err error) func(*faulty.Store) {
		return func(s *faulty.Store) {
			s.OnAcquire = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
				return backend.LeaseRecord{}, err
			}
		}
	}
	renewFenced := func(s *faulty.Store) {
		s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error { return backend.ErrFenced }
	}
	ending := func(err error) func(context.Context) error {
		return func(context.Context) error { return err }
	}
	for _, tc := range []struct {
		name   string
		cfg    leader.Config
		before func(*faulty.Store)
		fn     func(context.Context) error
		pauses bool
	}{
		{name: "held elsewhere", cfg: leader.Config{IdleInterval: pause, BackoffInterval: never}, before: held, pauses: true},
		{name: "the store is down", cfg: leader.Config{IdleInterval: never, BackoffInterval: pause}, before: down(errStore), pauses: true},
		{name: "the store is down, without a backoff", cfg: leader.Config{IdleInterval: never}, before: down(errStore)},
		{name: "a context's error", cfg: leader.Config{IdleInterval: never, BackoffInterval: never}, before: down(context.Canceled)},
		{name: "finished", cfg: leader.Config{IdleInterval: never, BackoffInterval: pause}, fn: ending(nil), pauses: true},
		{name: "retired", cfg: leader.Config{IdleInterval: never, BackoffInterval: pause}, fn: ending(worklease.ErrRetire), pauses: true},
		{name: "failed", cfg: leader.Config{IdleInterval: never, BackoffInterval: pause}, fn: ending(errWork), pauses: true},
		{name: "failed, without a backoff", cfg: leader.Config{IdleInterval: never}, fn: ending(errWork)},
		{name: "fenced", cfg: leader.Config{IdleInterval: never, BackoffInterval: never}, before: renewFenced,
			fn: func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			}},
	} {
		ginkgo.It("paces an election: "+tc.name, func(ctx context.Context) {
			ctx = limited(ctx)
			s := w.faulty()
			if tc.before != nil {
				tc.before(s)
			}
			fn := tc.fn
			if fn == nil {
				fn = func(context.Context) error {
					ginkgo.Fail("the function was called")
					return nil
				}
			}
			start := time.Now()
			_ = leader.Elect(ctx, leaseOf(s, "a"), w.work, tc.cfg, fn)
			gomega.Expect(ctx.Err()).NotTo(gomega.HaveOccurred(), "Elect pauses although it should not")
			if tc.pauses {
				gomega.Expect(time.Since(start)).To(gomega.BeNumerically(">=", pause))
			}
		})
	}

	ginkgo.It("ends a pause with its context, and leaves the lease free meanwhile", func(ctx context.Context) {
		ctx = limited(ctx)
		ended, end := context.WithCancel(ctx)
		done, led := make(chan error), make(chan struct{})
		go func() {
			done <- leader.Elect(ended, leaseOf(w.store, "a"), w.work, leader.Config{BackoffInterval: never}, func(context.Context) error {
				close(led)
				return errWork
			})
		}()
		gomega.Eventually(led).WithTimeout(soon).Should(gomega.BeClosed())
		gomega.Expect(w.inherit(ctx).PrevExit).To(gomega.Equal(worklease.ExitAbandoned))
		end()
		gomega.Eventually(done).WithTimeout(soon).Should(gomega.Receive(gomega.MatchError(errWork)))
	})

	ginkgo.It("keeps on standing for election until the function has finished", func(ctx context.Context) {
		ctx = limited(ctx)
		s := w.faulty()
		attempts := 0
		s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
			if attempts++; attempts <= 2 {
				return backend.LeaseRecord{}, errStore
			}
			return w.store.Acquire(ctx, workID, holderID, ttl)
		}
		events := new(log)
		terms := 0
		err := leader.Run(ctx, leaseOf(s, "a"), w.work, leader.Config{
			IdleInterval: time.Millisecond, BackoffInterval: time.Millisecond,
			OnError: func(_ context.Context, err error) { events.add(nameOf(err)) },
		}, func(context.Context) error {
			if terms++; terms == 1 {
				return errWork
			}
			return nil
		})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(events.String()).To(gomega.Equal("store store work "))
		gomega.Expect(w.inherit(ctx).PrevExit).To(gomega.Equal(worklease.ExitFinished))
	})
}

func nameOf(err error) string {
	for name, target := range map[string]error{"store": errStore, "work": errWork} {
		if matchesAny([]error{err}, target) {
			return name
		}
	}
	return err.Error()
}
