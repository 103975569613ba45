package conformance

import (
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

var delayedRelease = operation{
	name:   "ReleaseAfter",
	expect: func(r rowState) outcome { return outcome{r.release.want, delayHeld} },
	call: func(p *probe, s situation) error {
		return tried(capability[backend.DelayedReleaser](p).ReleaseAfter(p.ctx, s.mine, s.otherExit(), hour))
	},
	effect: func(p *probe, s situation) {
		s.later = true
		p.refused(p.store.Renew(p.ctx, s.mine, hour), backend.ErrLeaseExpired)
		p.unchanged(s)
	},
}

// releaseAfter is a call that must succeed.
func (p *probe) releaseAfter(record backend.LeaseRecord, mode backend.ExitMode, delay time.Duration) {
	ginkgo.GinkgoHelper()
	c := capability[backend.DelayedReleaser](p)
	p.Expect(tried(c.ReleaseAfter(p.ctx, record, mode, delay))).To(gomega.Succeed(), "ReleaseAfter")
}

func (s suite) delays() {
	for _, mode := range declarable {
		able(s, "as "+mode.String()+" free the lease when they are due, and not before", delayExpiry, func(p *probe, _ backend.DelayedReleaser) {
			mine := p.acquire(work, "me", hour)
			p.checkpoint(mine, "state", hour)
			asked := time.Now()
			p.releaseAfter(mine, mode, short)
			var next backend.LeaseRecord
			p.Eventually(func() (err error) {
				next, err = p.store.Acquire(p.ctx, work, "next", hour)
				return err
			}).WithTimeout(pollLimit).WithPolling(poll).Should(gomega.Succeed())
			p.Expect(time.Since(asked)).To(gomega.BeNumerically(">=", short-slack), "time from ReleaseAfter to the Acquire")
			p.reads(next, left("state", mode, "me"))
		})
	}

	for _, delay := range []time.Duration{0, -1, -hour} {
		able(s, "of "+delay.String()+" free the lease at once", delayNone, func(p *probe, _ backend.DelayedReleaser) {
			p.releaseAfter(p.acquire(work, "me", hour), backend.ExitAbandoned, delay)
			p.finds(work, backend.Checkpoint{PrevExit: backend.ExitAbandoned, PrevHolderID: "me"})
		})
	}

	able(s, "may outlast the lease", delayExpiry, func(p *probe, _ backend.DelayedReleaser) {
		mine := p.acquire(work, "me", hour)
		p.releaseAfter(mine, backend.ExitFinished, 2*hour)
		p.held(work)
		if held, ok := p.heldError(work, "me"); ok {
			p.Expect(held.HolderID).To(gomega.Equal("me"))
			p.Expect(held.ExpiresAt).To(gomega.BeTemporally("~", mine.ExpiresAt.Add(hour), 2*specLimit))
			p.Expect(held.Exit).To(gomega.BeElementOf(backend.ExitNone, backend.ExitFinished))
		}
	})

	able(s, "as retired are swept when they are due, and not before", delaySweep, func(p *probe, _ backend.DelayedReleaser) {
		mine := p.acquire(work, "me", hour)
		asked := time.Now()
		p.releaseAfter(mine, backend.ExitRetired, short)
		p.Eventually(p.deletes(backend.SweepOptions{Retention: anyAge})).
			WithTimeout(pollLimit).WithPolling(poll).Should(gomega.BeEquivalentTo(1))
		p.Expect(time.Since(asked)).To(gomega.BeNumerically(">=", short-slack), "time from ReleaseAfter to the deletion")
		p.fenced(mine)
	})

	able(s, "with an invalid mode are refused", delayMode, func(p *probe, c backend.DelayedReleaser) {
		row := superseded("other")(p)
		for _, mode := range invalidModes {
			for _, record := range []backend.LeaseRecord{row.mine, row.owner} {
				p.refused(tried(c.ReleaseAfter(p.ctx, record, mode, hour)), backend.ErrInvalidExitMode)
			}
		}
		p.unchanged(row)
	})
}
