package conformance

import (
	"fmt"

	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

var invalidModes = []backend.ExitMode{backend.ExitNone, backend.ExitExpired, backend.ExitMode(9), backend.ExitMode(255)}

func (s suite) releases() {
	for _, mode := range declarable {
		s.it("as "+mode.String()+" free the lease at once", releaseLive, func(p *probe) {
			p.release(p.acquire(work, "me", hour), mode)
			p.finds(work, backend.Checkpoint{PrevExit: mode, PrevHolderID: "me"})
		})

		s.it("as "+mode.String()+" are not changed by a second one", releaseTwice, func(p *probe) {
			mine := p.acquire(work, "me", hour)
			p.release(mine, mode)
			for _, second := range declarable {
				p.refused(p.store.Release(p.ctx, mine, second), backend.ErrLeaseExpired)
			}
			p.finds(work, backend.Checkpoint{PrevExit: mode, PrevHolderID: "me"})
		})
	}

	s.it("stay when a Renew comes late", renewLate, func(p *probe) {
		row := released(backend.ExitFinished)(p)
		p.refused(p.store.Renew(p.ctx, row.mine, hour), backend.ErrLeaseExpired)
		p.unchanged(row)
	})

	s.it("stay when a Checkpoint comes late", checkpointLate, func(p *probe) {
		row := released(backend.ExitFinished)(p)
		p.refused(p.store.Checkpoint(p.ctx, row.mine, []byte("late"), hour), backend.ErrLeaseExpired)
		p.unchanged(row)
	})

	s.it("end a lease that was just renewed and checkpointed", releaseLive, func(p *probe) {
		mine := p.acquire(work, "me", hour)
		p.renew(mine, 2*hour)
		p.checkpoint(mine, "state", 3*hour)
		p.release(mine, backend.ExitAbandoned)
		p.finds(work, left("state", backend.ExitAbandoned, "me"))
	})

	s.it("end a lease that was revived", releaseLive, func(p *probe) {
		mine := p.acquire(work, "me", over)
		p.checkpoint(mine, "state", hour)
		p.release(mine, backend.ExitFinished)
		p.finds(work, left("state", backend.ExitFinished, "me"))
	})

	rows := []struct {
		name  string
		setUp func(*probe) situation
	}{
		{"no row", absent},
		{"a lease that I hold", live},
		{"my lapsed lease", lapsed},
		{"my released lease", released(backend.ExitAbandoned)},
		{"a later tenure", superseded("other")},
	}
	for _, row := range rows {
		s.it("with an invalid mode are refused with "+row.name, releaseMode, func(p *probe) {
			r := row.setUp(p)
			for _, mode := range invalidModes {
				err := p.store.Release(p.ctx, r.mine, mode)
				p.Expect(err).To(gomega.HaveOccurred(), fmt.Sprintf("Release as %v", mode))
				p.refused(err, backend.ErrInvalidExitMode)
			}
			p.unchanged(r)
		})
	}
}
