package integration_test

import (
	"context"
	"errors"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/leader"
	"github.com/aetomala/worklease/pool"
	"github.com/aetomala/worklease/worker"
)

// outcome is a row of the table that worker, leader and pool share: what happens to a tenure, and what
// comes of it.
type outcome struct {
	name   string
	before func(w *world, ctx context.Context) // before anybody tries
	fault  func(w *world, s *faulty.Store)
	work   func(w *world, ctx context.Context, token worklease.Token) ([]byte, error)

	errs []error // that the error matches; none: nil is returned

	// What the successor finds. State is for those who have one: nil means what was there before.
	exit  worklease.ExitMode
	state []byte

	events string // of a leader
	then   string // of a slot
}

const (
	before   = "before" // the state that the predecessor left
	elected  = "elected "
	lost     = "elected lost "
	released = "elected relinquished "
)

func outcomes() []outcome {
	returning := func(state []byte, err error) func(*world, context.Context, worklease.Token) ([]byte, error) {
		return func(*world, context.Context, worklease.Token) ([]byte, error) { return state, err }
	}
	untilDone := func(_ *world, ctx context.Context, _ worklease.Token) ([]byte, error) {
		<-ctx.Done()
		return []byte("too late"), errWork
	}
	renewal := func(err error) func(*world, *faulty.Store) {
		return func(_ *world, s *faulty.Store) {
			s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error { return err }
		}
	}
	release := func(err error) func(*world, *faulty.Store) {
		return func(_ *world, s *faulty.Store) {
			s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error { return err }
		}
	}
	return []outcome{
		{
			name: "finishes", work: returning([]byte("done"), nil),
			exit: worklease.ExitFinished, state: []byte("done"), events: released, then: "acquired",
		}, {
			name: "finishes and leaves the state as it is", work: returning(nil, nil),
			exit: worklease.ExitFinished, events: released, then: "acquired",
		}, {
			name: "finishes and clears the state", work: returning([]byte{}, nil),
			exit: worklease.ExitFinished, state: []byte{}, events: released, then: "acquired",
		}, {
			name: "retires", work: returning([]byte("done"), worklease.ErrRetire),
			exit: worklease.ExitRetired, state: []byte("done"), events: released, then: "acquired retired",
		}, {
			name: "fails", work: returning([]byte("half"), errWork), errs: []error{errWork},
			exit: worklease.ExitAbandoned, state: []byte("half"), events: elected, then: "acquired backoff",
		}, {
			name: "fails for good", work: returning([]byte("half"), pool.Permanent(errWork)), errs: []error{errWork},
			exit: worklease.ExitAbandoned, state: []byte("half"), events: elected, then: "acquired dead",
		}, {
			name: "retires for good", work: returning(nil, pool.Permanent(worklease.ErrRetire)),
			exit: worklease.ExitRetired, events: released, then: "acquired retired",
		}, {
			name: "finds its lease taken over", work: func(w *world, ctx context.Context, token worklease.Token) ([]byte, error) {
				w.takeOver(ctx, token)
				<-ctx.Done()
				return []byte("too late"), context.Cause(ctx)
			},
			errs: []error{worklease.ErrFenced}, exit: worklease.ExitExpired, events: lost, then: "acquired lost",
		}, {
			name: "finds its lease taken over as it finishes", work: func(w *world, ctx context.Context, token worklease.Token) ([]byte, error) {
				w.takeOver(ctx, token)
				return []byte("too late"), nil
			},
			errs: []error{worklease.ErrFenced}, exit: worklease.ExitExpired, events: lost, then: "acquired lost",
		}, {
			name: "loses its lease to the clock", work: untilDone, fault: renewal(errStore),
			errs: []error{errWork, worklease.ErrLeaseWindowExhausted}, exit: worklease.ExitExpired, events: lost, then: "acquired backoff",
		}, {
			name: "is told that its lease has expired", work: untilDone, fault: renewal(backend.ErrLeaseExpired),
			errs: []error{errWork, worklease.ErrLeaseWindowExhausted, worklease.ErrLeaseExpired},
			exit: worklease.ExitExpired, events: lost, then: "acquired backoff",
		}, {
			name: "cannot be released", work: returning(nil, nil), fault: release(errStore),
			errs: []error{errStore}, exit: worklease.ExitExpired, events: elected, then: "acquired backoff",
		}, {
			name: "fails, and cannot be released", work: returning(nil, errWork), fault: release(errStore),
			errs: []error{errWork, errStore}, exit: worklease.ExitExpired, events: elected, then: "acquired backoff",
		}, {
			name: "is held by another", before: func(w *world, ctx context.Context) {
				_, err := w.store.Acquire(ctx, w.work, "rival", shortTTL)
				gomega.Expect(err).NotTo(gomega.HaveOccurred())
			},
			errs: []error{worklease.ErrLeaseHeld}, exit: worklease.ExitExpired,
		}, {
			name: "finds the store down", fault: func(_ *world, s *faulty.Store) {
				s.OnAcquire = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
					return backend.LeaseRecord{}, errStore
				}
			},
			errs: []error{errStore}, exit: worklease.ExitAbandoned, then: "backoff",
		},
	}
}

// Outcomes of work that has state, beside those above.
func statefulOutcomes() []outcome {
	save := func(err error) func(*world, *faulty.Store) {
		return func(_ *world, s *faulty.Store) {
			s.OnCheckpoint = func(context.Context, backend.LeaseRecord, []byte, time.Duration) error { return err }
		}
	}
	saving := func(err error) func(*world, context.Context, worklease.Token) ([]byte, error) {
		return func(*world, context.Context, worklease.Token) ([]byte, error) { return []byte("lost"), err }
	}
	return []outcome{
		{
			name: "finishes and cannot be saved", work: saving(nil), fault: save(errStore), errs: []error{errStore},
			exit: worklease.ExitAbandoned, then: "acquired backoff",
		}, {
			name: "fails and cannot be saved", work: saving(errWork), fault: save(errStore), errs: []error{errWork, errStore},
			exit: worklease.ExitAbandoned, then: "acquired backoff",
		}, {
			name: "retires and cannot be saved", work: saving(worklease.ErrRetire), fault: save(errStore),
			errs: []error{errStore, worklease.ErrRetire}, exit: worklease.ExitAbandoned, then: "acquired backoff",
		}, {
			name: "cannot read what was left", errs: []error{errStore}, exit: worklease.ExitExpired, then: "backoff",
			fault: func(_ *world, s *faulty.Store) {
				s.OnReadCheckpoint = func(context.Context, backend.LeaseRecord) (backend.Checkpoint, error) {
					return backend.Checkpoint{}, errStore
				}
			},
		},
	}
}

// prepare makes the predecessor leave something, and returns the holder's way to the store.
func (o outcome) prepare(ctx context.Context, w *world) *faulty.Store {
	ginkgo.GinkgoHelper()
	record, err := w.store.Acquire(ctx, w.work, "predecessor", ttl)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(w.store.Checkpoint(ctx, record, []byte(before), ttl)).To(gomega.Succeed())
	gomega.Expect(w.store.Release(ctx, record, backend.ExitAbandoned)).To(gomega.Succeed())
	if o.before != nil {
		o.before(w, ctx)
	}
	s := w.faulty()
	if o.fault != nil {
		o.fault(w, s)
	}
	return s
}

// lease is the holder's. Where the test waits for its end it ends sooner.
func (o outcome) lease(s *faulty.Store) worklease.Lease {
	ginkgo.GinkgoHelper()
	d := ttl
	if o.exit == worklease.ExitExpired {
		d = shortTTL
	}
	lease, err := worklease.New(s, worklease.Config{TTL: d, HolderID: "a"})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return lease
}

func (o outcome) do(ctx context.Context, w *world, token worklease.Token) ([]byte, error) {
	if o.work == nil {
		ginkgo.Fail("the work was begun")
	}
	return o.work(w, ctx, token)
}

func (o outcome) wantErr(err error) {
	ginkgo.GinkgoHelper()
	if len(o.errs) == 0 {
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
	for _, want := range o.errs {
		gomega.Expect(err).To(gomega.MatchError(want))
	}
	for _, other := range []error{worklease.ErrFenced, worklease.ErrLeaseHeld, worklease.ErrLeaseExpired, worklease.ErrLeaseWindowExhausted} {
		if !matchesAny(o.errs, other) {
			gomega.Expect(errors.Is(err, other)).To(gomega.BeFalse(), "%v matches %v", err, other)
		}
	}
}

func matchesAny(errs []error, target error) bool {
	for _, err := range errs {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

func (o outcome) wantFound(found worklease.Checkpoint, state string) {
	ginkgo.GinkgoHelper()
	gomega.Expect(found.PrevExit).To(gomega.Equal(o.exit))
	gomega.Expect(string(found.State)).To(gomega.Equal(state))
}

func (o outcome) stateFound() string {
	if o.state == nil {
		return before
	}
	return string(o.state)
}

func describeTenures(w *world) {
	ginkgo.Describe("worker", func() {
		for _, o := range append(outcomes(), statefulOutcomes()...) {
			ginkgo.It(o.name, func(ctx context.Context) {
				ctx = limited(ctx)
				s := o.prepare(ctx, w)
				runner, err := worker.NewRunner(worker.RunnerConfig{
					Lease: o.lease(s),
					WorkFn: func(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
						gomega.Expect(string(prior.State)).To(gomega.Equal(before))
						gomega.Expect(prior.PrevExit).To(gomega.Equal(worklease.ExitAbandoned))
						gomega.Expect(prior.PrevHolderID).To(gomega.Equal("predecessor"))
						return o.do(ctx, w, token)
					},
				})
				gomega.Expect(err).NotTo(gomega.HaveOccurred())
				o.wantErr(runner.Run(ctx, w.work))
				o.wantFound(w.inherit(ctx), o.stateFound())
			})
		}

		ginkgo.It("drains after a shutdown for longer than the TTL, and keeps its lease", func(ctx context.Context) {
			ctx = limited(ctx)
			runCtx, shutdown := context.WithCancel(ctx)
			runner, err := worker.NewRunner(worker.RunnerConfig{
				Lease: leaseOf(w.store, "a"),
				WorkFn: func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
					shutdown()
					<-ctx.Done()
					time.Sleep(ttl + ttl/4)
					return []byte("saved"), ctx.Err()
				},
			})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			gomega.Expect(runner.Run(runCtx, w.work)).To(gomega.MatchError(context.Canceled))
			found := w.inherit(ctx)
			gomega.Expect(string(found.State)).To(gomega.Equal("saved"))
			gomega.Expect(found.PrevExit).To(gomega.Equal(worklease.ExitAbandoned))
		})

		ginkgo.It("panics, and the next holder finds the last checkpoint", func(ctx context.Context) {
			ctx = limited(ctx)
			lease := leaseOf(w.store, "a")
			runner, err := worker.NewRunner(worker.RunnerConfig{
				Lease: lease,
				WorkFn: func(ctx context.Context, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
					gomega.Expect(lease.Checkpoint(ctx, token, []byte("half"))).To(gomega.Succeed())
					panic("bug")
				},
			})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			gomega.Expect(func() { _ = runner.Run(ctx, w.work) }).To(gomega.PanicWith("bug"))
			found := w.inherit(ctx)
			gomega.Expect(string(found.State)).To(gomega.Equal("half"))
			gomega.Expect(found.PrevExit).To(gomega.Equal(worklease.ExitExpired))
		})
	})

	ginkgo.Describe("leader", func() {
		for _, o := range outcomes() {
			ginkgo.It(o.name, func(ctx context.Context) {
				ctx = limited(ctx)
				s := o.prepare(ctx, w)
				events := new(log)
				var token worklease.Token
				tell := func(event string) func(context.Context, worklease.Token) {
					return func(_ context.Context, t worklease.Token) {
						token = t
						events.add(event)
					}
				}
				err := leader.Elect(ctx, o.lease(s), w.work, leader.Config{
					IdleInterval: time.Millisecond,
					OnElected:    tell("elected"), OnLost: tell("lost"), OnRelinquished: tell("relinquished"),
				}, func(ctx context.Context) error {
					_, err := o.do(ctx, w, token)
					return err
				})
				o.wantErr(err)
				gomega.Expect(events.String()).To(gomega.Equal(o.events))
				o.wantFound(w.inherit(ctx), before) // a leader has no state
			})
		}
	})
}
