package conformance

import (
	"fmt"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

// finalCheckpoint is refused where a Checkpoint is.
var finalCheckpoint = operation{
	name: "CheckpointRelease",
	expect: func(r rowState) outcome {
		return outcome{r.checkpoint.want, finalStep}
	},
	call: func(p *probe, s situation) error {
		c := capability[backend.CheckpointReleaser](p)
		return tried(c.CheckpointRelease(p.ctx, s.mine, []byte("final state"), s.otherExit()))
	},
	effect: func(p *probe, s situation) {
		s.held = false
		s.reads.State = []byte("final state")
		s.next.State = []byte("final state")
		s.next.PrevExit = backend.ExitAbandoned
		p.unchanged(s)
	},
}

// checkpointRelease is a call that must succeed.
func (p *probe) checkpointRelease(record backend.LeaseRecord, state []byte, mode backend.ExitMode) {
	ginkgo.GinkgoHelper()
	c := capability[backend.CheckpointReleaser](p)
	p.Expect(tried(c.CheckpointRelease(p.ctx, record, state, mode))).To(gomega.Succeed(), "CheckpointRelease")
}

func (s suite) finals() {
	for _, mode := range declarable {
		able(s, "as "+mode.String()+" are not changed by a second one", finalTwice, func(p *probe, c backend.CheckpointReleaser) {
			mine := p.acquire(work, "me", hour)
			p.checkpointRelease(mine, []byte("final"), mode)
			for _, second := range declarable {
				p.refused(c.CheckpointRelease(p.ctx, mine, []byte("second"), second), backend.ErrLeaseExpired)
				p.refused(p.store.Release(p.ctx, mine, second), backend.ErrLeaseExpired)
			}
			p.refused(p.store.Renew(p.ctx, mine, hour), backend.ErrLeaseExpired)
			p.refused(p.store.Checkpoint(p.ctx, mine, []byte("late"), hour), backend.ErrLeaseExpired)
			p.finds(work, left("final", mode, "me"))
		})
	}

	for name, none := range map[string][]byte{"nil": nil, "empty": {}} {
		able(s, "of "+name+" state clear the state before", stateNone, func(p *probe, _ backend.CheckpointReleaser) {
			mine := p.acquire(work, "me", hour)
			p.checkpoint(mine, "state", hour)
			p.checkpointRelease(mine, none, backend.ExitFinished)
			p.finds(work, backend.Checkpoint{PrevExit: backend.ExitFinished, PrevHolderID: "me"})
		})
	}

	able(s, "do not share the slice that was stored", stateOwned, func(p *probe, _ backend.CheckpointReleaser) {
		mine := p.acquire(work, "me", hour)
		state := []byte("state")
		p.checkpointRelease(mine, state, backend.ExitFinished)
		copy(state, "STATE")
		p.finds(work, left("state", backend.ExitFinished, "me"))
	})

	able(s, "with an invalid mode are refused", finalMode, func(p *probe, c backend.CheckpointReleaser) {
		row := superseded("other")(p)
		for _, mode := range invalidModes {
			for _, record := range []backend.LeaseRecord{row.mine, row.owner} {
				err := tried(c.CheckpointRelease(p.ctx, record, []byte("final"), mode))
				p.Expect(err).To(gomega.HaveOccurred(), fmt.Sprintf("CheckpointRelease as %v", mode))
				p.refused(err, backend.ErrInvalidExitMode)
			}
		}
		p.unchanged(row)
	})

	able(s, "of several at once record one, with its state", raceRelease, func(p *probe, c backend.CheckpointReleaser) {
		for round := range rounds {
			workID := fmt.Sprint("work ", round)
			mine := p.acquire(workID, "me", hour)
			errs := together(6, func(i int) error {
				return tried(c.CheckpointRelease(p.ctx, mine, fmt.Append(nil, i), declarable[i%len(declarable)]))
			})
			recorded := p.winner(errs, backend.ErrLeaseExpired)
			p.finds(workID, left(fmt.Sprint(recorded), declarable[recorded%len(declarable)], "me"))
		}
	})
}
