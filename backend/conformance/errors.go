package conformance

import (
	"errors"
	"time"

	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

func (s suite) errors() {
	s.it("match one sentinel each", errorsApart, func(p *probe) {
		row := superseded("other")(p)
		_, heldErr := p.store.Acquire(p.ctx, work, "next", hour)
		p.refused(heldErr, backend.ErrLeaseHeld)
		p.refused(p.store.Renew(p.ctx, row.mine, hour), backend.ErrFenced)
		p.refused(p.store.Release(p.ctx, row.mine, backend.ExitNone), backend.ErrInvalidExitMode)
		p.release(row.owner, backend.ExitFinished)
		p.refused(p.store.Renew(p.ctx, row.owner, hour), backend.ErrLeaseExpired)
	})

	s.it("of a held lease tell who holds it", errorHeld, func(p *probe) {
		mine := p.acquire(work, "me", hour)
		held, ok := p.heldError(work, "next")
		if !ok {
			return // the store does not know, which is allowed
		}
		p.Expect(held.WorkID).To(gomega.Equal(work))
		p.Expect(held.HolderID).To(gomega.Equal("me"))
		p.Expect(held.ExpiresAt).To(gomega.BeTemporally("~", mine.ExpiresAt, time.Millisecond), "the expiry that Acquire stored")

		held, _ = p.heldError(work, "me")
		p.Expect(held.HolderID).To(gomega.Equal("me"))
	})

	s.it("of a held lease tell the expiry that a Renew stored", errorHeld, func(p *probe) {
		mine := p.acquire(work, "me", hour)
		p.renew(mine, 2*hour)
		if held, ok := p.heldError(work, "next"); ok {
			p.Expect(held.ExpiresAt).To(gomega.BeTemporally("~", mine.ExpiresAt.Add(hour), 2*specLimit))
		}
	})

	s.it("of a held lease tell the present holder, not the one before", errorHeld, func(p *probe) {
		superseded("other")(p)
		if held, ok := p.heldError(work, "next"); ok {
			p.Expect(held.HolderID).To(gomega.Equal("other"))
		}
	})
}

// heldError returns the *HeldError of an Acquire of a held lease. ok is false if there is none.
func (p *probe) heldError(workID, holderID string) (held backend.HeldError, ok bool) {
	_, err := p.store.Acquire(p.ctx, workID, holderID, hour)
	p.refused(err, backend.ErrLeaseHeld)
	if found, ok := errors.AsType[*backend.HeldError](err); ok {
		return *found, true
	}
	return held, false
}
