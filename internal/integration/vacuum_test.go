package integration_test

import (
	"context"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/leader"
	"github.com/aetomala/worklease/worker"
)

type sweepLog struct{ events []worklease.SweepEvent }

func (l *sweepLog) OnSweep(_ context.Context, event worklease.SweepEvent) {
	l.events = append(l.events, event)
}

func describeVacuum(w *world) {
	ginkgo.It("sweeps what workers and leaders have retired, and nothing else", func(ctx context.Context) {
		ctx = limited(ctx)
		run := func(workID string, result error) {
			runner, err := worker.NewRunner(worker.RunnerConfig{
				Lease: leaseOf(w.store, "a"),
				WorkFn: func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) {
					return []byte("state"), result
				},
			})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			if err := runner.Run(ctx, workID); result == nil || result == worklease.ErrRetire {
				gomega.Expect(err).NotTo(gomega.HaveOccurred())
			}
		}
		run(w.work+" retired", worklease.ErrRetire)
		run(w.work+" finished", nil)
		run(w.work+" abandoned", errWork)
		gomega.Expect(leader.Elect(ctx, leaseOf(w.store, "a"), w.work+" led", leader.Config{},
			func(context.Context) error { return worklease.ErrRetire })).To(gomega.Succeed())
		_, err := leaseOf(w.store, "a").Acquire(ctx, w.work+" held")
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		time.Sleep(20 * time.Millisecond) // the retention is to have passed

		seen := new(sweepLog)
		vacuum, err := worklease.NewVacuum(w.store, worklease.VacuumConfig{Observer: seen})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		opts := worklease.SweepOptions{Retention: 10 * time.Millisecond}
		deleted, err := vacuum.Sweep(ctx, opts)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(deleted).To(gomega.BeNumerically(">=", 2)) // other specs leave retired rows too
		gomega.Expect(seen.events).To(gomega.HaveLen(1))
		gomega.Expect(seen.events[0].Options).To(gomega.Equal(opts))
		gomega.Expect(seen.events[0].Deleted).To(gomega.Equal(deleted))
		gomega.Expect(seen.events[0].Err).NotTo(gomega.HaveOccurred())

		for workID, exit := range map[string]worklease.ExitMode{
			" retired": worklease.ExitNone, " led": worklease.ExitNone,
			" finished": worklease.ExitFinished, " abandoned": worklease.ExitAbandoned,
		} {
			found := (&world{store: w.store, work: w.work + workID}).inherit(ctx)
			gomega.Expect(found.PrevExit).To(gomega.Equal(exit), workID)
		}
		_, err = leaseOf(w.store, "b").Acquire(ctx, w.work+" held")
		gomega.Expect(err).To(gomega.MatchError(worklease.ErrLeaseHeld))
	})
}
