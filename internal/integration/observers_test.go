package integration_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/worker"
)

// callLog notes each call to the store, and how it ended.
type callLog struct{ log }

func (l *callLog) note(call string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, worklease.ErrLeaseHeld):
		call += ":held"
	case errors.Is(err, worklease.ErrFenced):
		call += ":fenced"
	case errors.Is(err, context.Canceled):
		call += ":cancelled"
	case errors.Is(err, errStore):
		call += ":store"
	default:
		call += ":" + err.Error()
	}
	l.add(call)
}

func (l *callLog) OnAcquire(_ context.Context, e worklease.AcquireEvent) { l.note("acquire", e.Err) }
func (l *callLog) OnReadCheckpoint(_ context.Context, e worklease.ReadCheckpointEvent) {
	l.note(fmt.Sprintf("read(%d bytes, %v by %q)", e.Size, e.PrevExit, e.PrevHolderID), e.Err)
}
func (l *callLog) OnCheckpoint(_ context.Context, e worklease.CheckpointEvent) {
	l.note(fmt.Sprintf("checkpoint(%d bytes)", e.Size), e.Err)
}
func (l *callLog) OnRenew(_ context.Context, e worklease.RenewEvent) {
	l.note(fmt.Sprintf("renew(%d)", e.Attempt), e.Err)
}
func (l *callLog) OnRelease(_ context.Context, e worklease.ReleaseEvent) {
	l.note(fmt.Sprintf("release(%v)", e.Mode), e.Err)
}
func (l *callLog) OnForget(_ context.Context, e worklease.ForgetEvent) { l.note("forget", e.Err) }
func (l *callLog) OnFenced(_ context.Context, e worklease.FencedEvent) {
	l.add("fenced(" + e.Operation.String() + ")")
}

func describeObservers(w *world) {
	run := func(ctx context.Context, b backend.Backend, seen *callLog, work worker.WorkFn) error {
		ginkgo.GinkgoHelper()
		runner, err := worker.NewRunner(worker.RunnerConfig{
			Lease: leaseOf(b, "a", seen), WorkFn: work,
			// No renewal comes in between, but where one is waited for.
			RenewalOptions: []worklease.RenewalOption{worklease.WithRenewalInterval(ttl / 2)},
		})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		return runner.Run(ctx, w.work)
	}
	returning := func(state string, err error) worker.WorkFn {
		return func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) {
			return []byte(state), err
		}
	}
	ginkgo.It("tells observers of each call, in order", func(ctx context.Context) {
		ctx = limited(ctx)
		seen := new(callLog)
		gomega.Expect(run(ctx, w.store, seen, returning("state", nil))).To(gomega.Succeed())
		gomega.Expect(run(ctx, w.store, seen, returning("", worklease.ErrRetire))).To(gomega.Succeed())
		gomega.Expect(seen.list()).To(gomega.Equal([]string{
			`acquire`, `read(0 bytes, none by "")`, `checkpoint(5 bytes)`, `release(finished)`,
			`acquire`, `read(5 bytes, finished by "a")`, `checkpoint(0 bytes)`, `release(retired)`,
		}))
	})
	ginkgo.It("lets observers tell contention, cancel, loss and fault apart", func(ctx context.Context) {
		ctx = limited(ctx)
		seen := new(callLog)
		_, err := w.store.Acquire(ctx, w.work, "rival", ttl)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		_ = run(ctx, w.store, seen, returning("", nil))
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		_ = run(cancelled, w.store, seen, returning("", nil))
		down := w.faulty()
		down.OnAcquire = func(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
			return backend.LeaseRecord{}, errStore
		}
		_ = run(ctx, down, seen, returning("", nil))
		w.inherit(ctx) // until the rival's lease is over
		gomega.Expect(seen.list()).To(gomega.Equal([]string{"acquire:held", "acquire:cancelled", "acquire:store"}))
	})
	ginkgo.It("tells observers of a fenced renewal", func(ctx context.Context) {
		ctx = limited(ctx)
		seen := new(callLog)
		err := run(ctx, w.store, seen, func(ctx context.Context, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			w.takeOver(ctx, token)
			<-ctx.Done()
			return nil, nil
		})
		gomega.Expect(err).To(gomega.MatchError(worklease.ErrFenced))
		// Whether the work returns before the news have reached the observer is open.
		gomega.Eventually(seen.list).WithTimeout(soon).Should(gomega.Equal([]string{
			`acquire`, `read(0 bytes, none by "")`, `renew(1):fenced`, `fenced(Renew)`,
		}))
	})
}
