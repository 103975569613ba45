package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/pool"
)

// slotLog is a pool's observer.
type slotLog struct {
	pool.NoopObserver
	log
}

func (l *slotLog) OnSlotAcquired(context.Context, pool.SlotAcquiredEvent) { l.add("acquired") }
func (l *slotLog) OnSlotLost(context.Context, pool.SlotLostEvent)         { l.add("lost") }
func (l *slotLog) OnSlotBackoff(context.Context, pool.SlotBackoffEvent)   { l.add("backoff") }
func (l *slotLog) OnSlotDead(context.Context, pool.SlotDeadEvent)         { l.add("dead") }
func (l *slotLog) OnSlotRetired(context.Context, pool.SlotRetiredEvent)   { l.add("retired") }

func describePool(w *world) {
	ginkgo.Describe("pool", func() {
		// One tenure of each outcome. The pause that follows is an hour, but for the slots that end and for
		// the fenced one, which is at once back at the lease that the rival has.
		for _, o := range append(outcomes(), statefulOutcomes()...) {
			ginkgo.It(o.name, func(ctx context.Context) {
				ctx = limited(ctx)
				s := o.prepare(ctx, w)
				seen := new(slotLog)
				p, err := pool.New(o.lease(s), pool.Config{
					WorkIDs: []string{w.work}, Observer: seen,
					IdleInterval: never, RerunInterval: never, BackoffInterval: never,
				}, func(ctx context.Context, workID string, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
					gomega.Expect(workID).To(gomega.Equal(w.work))
					gomega.Expect(string(prior.State)).To(gomega.Equal(before))
					return o.do(ctx, w, token)
				})
				gomega.Expect(err).NotTo(gomega.HaveOccurred())
				runCtx, stop := context.WithCancel(ctx)
				done := make(chan error)
				go func() {
					defer ginkgo.GinkgoRecover()
					done <- p.Run(runCtx)
				}()
				gomega.Eventually(func() string { return strings.Join(seen.list(), " ") }).WithTimeout(soon).Should(gomega.Equal(o.then))
				switch o.then {
				case "acquired dead":
					gomega.Eventually(done).WithTimeout(soon).Should(gomega.Receive(gomega.MatchError(pool.ErrAllSlotsDead)))
					stop()
				case "acquired retired":
					gomega.Eventually(done).WithTimeout(soon).Should(gomega.Receive(gomega.BeNil()))
					stop()
				case "acquired lost":
					gomega.Eventually(s.Acquires.Load).WithTimeout(soon).Should(gomega.BeNumerically(">=", 2))
					fallthrough
				default:
					if o.then != "" { // held elsewhere makes no event: there is nothing to wait for
						o.wantFound(w.inherit(ctx), o.stateFound())
					}
					stop()
					gomega.Eventually(done).WithTimeout(soon).Should(gomega.Receive(gomega.BeNil()))
				}
				gomega.Expect(strings.Join(seen.list(), " ")).To(gomega.Equal(o.then))
				gomega.Expect(p.ActiveSlots()).To(gomega.BeEmpty())
			})
		}

		ginkgo.It("runs again after RerunInterval, IdleInterval and BackoffInterval", func(ctx context.Context) {
			ctx = limited(ctx)
			s := w.faulty()
			answers := []error{nil, errStore, backend.ErrLeaseHeld, nil}
			s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
				answer := answers[0]
				answers = answers[1:]
				if answer != nil {
					return backend.LeaseRecord{}, answer
				}
				return w.store.Acquire(ctx, workID, holderID, ttl)
			}
			runs := 0
			const pause = 100 * time.Millisecond
			p, err := pool.New(leaseOf(s, "a"), pool.Config{
				WorkIDs: []string{w.work}, IdleInterval: pause, RerunInterval: pause, BackoffInterval: pause,
			}, func(context.Context, string, worklease.Token, worklease.Checkpoint) ([]byte, error) {
				if runs++; runs == 2 {
					return nil, worklease.ErrRetire
				}
				return nil, nil
			})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			start := time.Now()
			gomega.Expect(p.Run(ctx)).To(gomega.Succeed())
			gomega.Expect(runs).To(gomega.Equal(2))
			gomega.Expect(time.Since(start)).To(gomega.BeNumerically(">=", 3*pause))
		})

		ginkgo.It("never runs a work ID twice at once, nor loses a checkpoint, when one of two pools stops", func(ctx context.Context) {
			describeHandover(limited(ctx), w)
		})
	})
}

// describeHandover counts in two pools on the same work IDs. Each step checkpoints the number of steps
// made so far, so that a count that does not go up by one each time is a lost checkpoint.
func describeHandover(ctx context.Context, w *world) {
	const n = 20
	workIDs := make([]string, n)
	for i := range workIDs {
		workIDs[i] = fmt.Sprintf("%s-%02d", w.work, i)
	}
	var mu sync.Mutex
	running := make(map[string]int)
	count := make(map[string]int)
	start := func(holder string) (*pool.Pool, context.CancelFunc, chan error) {
		lease := leaseOf(w.store, holder)
		p, err := pool.New(lease, pool.Config{WorkIDs: workIDs, IdleInterval: 500 * time.Millisecond},
			func(ctx context.Context, workID string, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
				mu.Lock()
				running[workID]++
				if running[workID] > 1 {
					defer ginkgo.GinkgoRecover()
					ginkgo.Fail(workID + " runs twice at once")
				}
				done := 0
				if prior.State != nil {
					done, _ = strconv.Atoi(string(prior.State))
				}
				if done != count[workID] {
					defer ginkgo.GinkgoRecover()
					ginkgo.Fail(fmt.Sprintf("%s resumes at %d, after %d steps", workID, done, count[workID]))
				}
				mu.Unlock()
				defer func() {
					mu.Lock()
					running[workID]--
					mu.Unlock()
				}()
				for ctx.Err() == nil {
					done++
					// One that the shutdown cut off might still arrive, after the final state even.
					if err := lease.Checkpoint(context.WithoutCancel(ctx), token, []byte(strconv.Itoa(done))); err != nil {
						done--
						break
					}
					select {
					case <-ctx.Done():
					case <-time.After(50 * time.Millisecond):
					}
				}
				mu.Lock()
				count[workID] = done
				mu.Unlock()
				return []byte(strconv.Itoa(done)), ctx.Err()
			})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		runCtx, stop := context.WithCancel(ctx)
		ginkgo.DeferCleanup(stop)
		done := make(chan error, 1)
		go func() {
			defer ginkgo.GinkgoRecover()
			done <- p.Run(runCtx)
		}()
		return p, stop, done
	}
	a, stopA, doneA := start("a")
	gomega.Eventually(a.ActiveSlots).WithTimeout(soon).Should(gomega.HaveLen(n))
	b, stopB, doneB := start("b")
	gomega.Consistently(b.ActiveSlots).WithTimeout(time.Second).Should(gomega.BeEmpty())
	stopA()
	gomega.Eventually(doneA).WithTimeout(soon).Should(gomega.Receive(gomega.BeNil()))
	released := time.Now()
	gomega.Eventually(b.ActiveSlots).WithTimeout(soon).Should(gomega.HaveLen(n))
	ginkgo.GinkgoWriter.Printf("all %d work IDs taken over %v after the other pool had stopped\n", n, time.Since(released))
	stopB()
	gomega.Eventually(doneB).WithTimeout(soon).Should(gomega.Receive(gomega.BeNil()))
	for _, id := range slices.Sorted(slices.Values(workIDs)) {
		w := &world{store: w.store, work: id}
		found := w.inherit(ctx)
		gomega.Expect(found.PrevExit).To(gomega.Equal(worklease.ExitAbandoned))
		gomega.Expect(string(found.State)).To(gomega.Equal(strconv.Itoa(count[id])))
	}
}
