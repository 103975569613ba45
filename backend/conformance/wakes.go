package conformance

import (
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

// patience is how long a wake-up is waited for before it counts as lost.
const patience = 200 * time.Millisecond

// wake returns a channel that is told of workID until the spec ends.
func (p *probe) wake(c backend.Waker, workID string) <-chan struct{} {
	ginkgo.GinkgoHelper()
	woken, stop := c.Wake(workID)
	p.Expect(stop).NotTo(gomega.BeNil(), "stop")
	ginkgo.DeferCleanup(stop)
	if woken == nil {
		ginkgo.Skip("the store has no wake-ups")
	}
	return woken
}

// tells calls free until each of waiters is told: a wake-up may be lost, but not all.
func (p *probe) tells(free func(), waiters ...<-chan struct{}) {
	ginkgo.GinkgoHelper()
	for deadline := time.Now().Add(pollLimit); len(waiters) > 0; {
		free()
		for late := time.After(patience); len(waiters) > 0; waiters = waiters[1:] {
			lost := false
			select {
			case _, open := <-waiters[0]:
				p.Expect(open).To(gomega.BeTrue(), "the channel is open")
			case <-late:
				lost = true
			}
			if lost {
				break
			}
		}
		p.Expect(len(waiters) == 0 || time.Now().Before(deadline)).To(gomega.BeTrue(), "%d were never told", len(waiters))
	}
}

func (s suite) wakes() {
	for name, free := range map[string]func(*probe, backend.LeaseRecord){
		"Release":           func(p *probe, mine backend.LeaseRecord) { p.release(mine, backend.ExitFinished) },
		"Forget":            func(p *probe, mine backend.LeaseRecord) { p.forget(mine) },
		"CheckpointRelease": func(p *probe, mine backend.LeaseRecord) { p.checkpointRelease(mine, nil, backend.ExitFinished) },
		"ReleaseAfter":      func(p *probe, mine backend.LeaseRecord) { p.releaseAfter(mine, backend.ExitFinished, 0) },
	} {
		able(s, "come after "+name, wakeTells, func(p *probe, c backend.Waker) {
			woken := p.wake(c, work)
			p.tells(func() { free(p, p.acquire(work, "me", hour)) }, woken)
			p.tells(func() { free(p, p.acquire(work, "me", hour)) }, woken)
		})
	}

	able(s, "come to each that waits", wakeAll, func(p *probe, c backend.Waker) {
		one, two, three := p.wake(c, work), p.wake(c, work), p.wake(c, work)
		p.tells(func() { p.release(p.acquire(work, "me", hour), backend.ExitFinished) }, one, two, three)
	})

	able(s, "come to those who wait beside one that does not look", wakeAll, func(p *probe, c backend.Waker) {
		p.wake(c, work)
		woken := p.wake(c, work)
		for range 3 {
			p.tells(func() { p.release(p.acquire(work, "me", hour), backend.ExitFinished) }, woken)
		}
	})

	able(s, "stop", wakeStop, func(p *probe, c backend.Waker) {
		stopped, stop := c.Wake(work)
		woken := p.wake(c, work)
		stop()
		select {
		case <-stopped: // a value from before
		default:
		}
		p.tells(func() { p.release(p.acquire(work, "me", hour), backend.ExitFinished) }, woken)
		stop()
		select {
		case _, open := <-stopped:
			p.Expect(open).To(gomega.BeFalse(), "a value came after stop")
			ginkgo.Fail("stop closed the channel")
		default:
		}
	})
}
