package conformance

import (
	"github.com/aetomala/worklease/backend"
)

var declarable = []backend.ExitMode{backend.ExitFinished, backend.ExitAbandoned, backend.ExitRetired}

// leaves ends the tenure of record. A holder leaves as expired by letting its lease lapse.
func (p *probe) leaves(record backend.LeaseRecord, exit backend.ExitMode) {
	if exit == backend.ExitExpired {
		p.renew(record, over)
		return
	}
	p.release(record, exit)
}

func (s suite) exits() {
	waysOut := append([]backend.ExitMode{backend.ExitExpired}, declarable...)

	s.it("are none and nobody for the first holder", exitCaptured, func(p *probe) {
		p.reads(p.acquire(work, "first", hour), backend.Checkpoint{})
	})

	for _, first := range waysOut {
		s.it("are captured over three holders, the first of which leaves as "+first.String(), exitCaptured, func(p *probe) {
			for _, second := range waysOut {
				one := p.acquire(work, "one", hour)
				p.reads(one, backend.Checkpoint{})
				p.leaves(one, first)

				two := p.acquire(work, "two", hour)
				p.reads(two, backend.Checkpoint{PrevExit: first, PrevHolderID: "one"})
				p.leaves(two, second)

				three := p.acquire(work, "three", hour)
				p.reads(three, backend.Checkpoint{PrevExit: second, PrevHolderID: "two"})
				p.forget(three)
			}
		})
	}

	for _, exit := range append([]backend.ExitMode{backend.ExitNone}, waysOut...) {
		s.it("stay the same for the whole tenure after "+exit.String(), exitSteady, func(p *probe) {
			var want backend.Checkpoint
			if exit != backend.ExitNone {
				p.leaves(p.acquire(work, "before", hour), exit)
				want = backend.Checkpoint{PrevExit: exit, PrevHolderID: "before"}
			}
			mine := p.acquire(work, "me", hour)
			p.reads(mine, want)
			p.checkpoint(mine, "state", hour)
			want.State = []byte("state")
			p.reads(mine, want)
			p.renew(mine, hour)
			p.reads(mine, want)
			p.renew(mine, over)
			p.reads(mine, want)
			p.checkpoint(mine, "state", hour)
			p.reads(mine, want)
			p.release(mine, backend.ExitFinished)
			p.reads(mine, want)
		})
	}

	s.it("are captured for a holder that follows itself", exitCaptured, func(p *probe) {
		p.release(p.acquire(work, "me", hour), backend.ExitAbandoned)
		p.reads(p.acquire(work, "me", hour), backend.Checkpoint{PrevExit: backend.ExitAbandoned, PrevHolderID: "me"})
	})

	s.it("are expired for a holder that was revived and lapsed again", exitCaptured, func(p *probe) {
		mine := p.acquire(work, "me", over)
		p.checkpoint(mine, "state", hour)
		p.renew(mine, over)
		p.finds(work, left("state", backend.ExitExpired, "me"))
	})

	for _, exit := range declarable {
		s.it("are cleared when a holder follows one that left as "+exit.String(), exitCleared, func(p *probe) {
			p.release(p.acquire(work, "before", hour), exit)
			mine := p.acquire(work, "me", hour)
			p.renew(mine, hour)
			p.checkpoint(mine, "state", hour)
			p.renew(mine, over)
			p.finds(work, left("state", backend.ExitExpired, "me"))
		})
	}

	s.it("are wiped by Forget", forgetWipes, func(p *probe) {
		row := live(p)
		p.forget(row.mine)
		next := p.finds(work, backend.Checkpoint{})
		p.release(next, backend.ExitFinished)
		p.finds(work, backend.Checkpoint{PrevExit: backend.ExitFinished, PrevHolderID: "next"})
	})

	s.it("and state of other work stay when one is forgotten", forgetWipes, func(p *probe) {
		row := live(p)
		p.forget(p.acquire("other work", "me", hour))
		p.unchanged(row)
	})
}
