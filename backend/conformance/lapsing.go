package conformance

import (
	"time"

	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

const (
	short = 50 * time.Millisecond // the ttl of a lease that lapses while its spec looks on
	poll  = 5 * time.Millisecond
	// slack is how much less than the store's clock that of this machine may have counted.
	slack = 5 * time.Millisecond
)

func (s suite) lapsing() {
	s.it("happens by itself, and not before the ttl has passed", lapseExpiry, func(p *probe) {
		asked := time.Now()
		p.acquire(work, "me", short)
		p.Eventually(func() error {
			_, err := p.store.Acquire(p.ctx, work, "next", hour)
			return err
		}).WithTimeout(pollLimit).WithPolling(poll).Should(gomega.Succeed())
		p.Expect(time.Since(asked)).To(gomega.BeNumerically(">=", short-slack), "time from the first Acquire to the second")
	})

	for _, ttl := range []time.Duration{0, -1, -hour} {
		s.it("is immediate with a ttl of "+ttl.String(), lapseNow, func(p *probe) {
			mine := p.acquire(work, "me", ttl)
			p.refused(p.store.Renew(p.ctx, mine, hour), backend.ErrLeaseExpired)
			p.refused(p.store.Release(p.ctx, mine, backend.ExitFinished), backend.ErrLeaseExpired)
			p.checkpoint(mine, "state", ttl)
			p.refused(p.store.Renew(p.ctx, mine, hour), backend.ErrLeaseExpired)
			p.checkpoint(mine, "state", hour)
			p.renew(mine, ttl)
			p.refused(p.store.Renew(p.ctx, mine, hour), backend.ErrLeaseExpired)
			p.finds(work, left("state", backend.ExitExpired, "me"))
		})
	}

	s.it("is put off by Renew and by Checkpoint", lapseExtend, func(p *probe) {
		// A store or a machine so slow that the lease is over before it can be extended gets more time.
		for ttl := short; p.ctx.Err() == nil; ttl *= 2 {
			renewed := p.acquire("renewed", "me", ttl)
			saved := p.acquire("saved", "me", ttl)
			asked := time.Now()
			if err := p.store.Renew(p.ctx, renewed, hour); err != nil {
				p.refused(err, backend.ErrLeaseExpired)
				p.forget(renewed)
				p.forget(saved)
				continue
			}
			p.checkpoint(saved, "state", hour)
			p.Eventually(func() time.Duration { return time.Since(asked) }).
				WithTimeout(pollLimit).WithPolling(poll).Should(gomega.BeNumerically(">", ttl+slack))
			p.held("renewed")
			p.held("saved")
			return
		}
	})

	s.it("is brought forward by a shorter ttl", lapseExtend, func(p *probe) {
		mine := p.acquire(work, "me", hour)
		p.renew(mine, 2*hour)
		p.renew(mine, over)
		p.finds(work, backend.Checkpoint{PrevExit: backend.ExitExpired, PrevHolderID: "me"})
	})

	s.it("is set by Acquire to now+ttl", acquireExpiry, func(p *probe) {
		one, two := p.acquire("one hour", "me", hour), p.acquire("two hours", "me", 2*hour)
		p.Expect(two.ExpiresAt.Sub(one.ExpiresAt)).To(gomega.BeNumerically("~", hour, 2*specLimit),
			"between the expiry of a lease of one hour and that of one of two hours, by the same clock")
	})
}
