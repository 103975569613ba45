package conformance

import (
	"math"

	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

func (s suite) tokens() {
	s.it("start above zero", tokenPositive, func(p *probe) {
		p.Expect(p.acquire(work, "me", hour).FencingToken).To(gomega.BeNumerically(">", 0))
	})

	s.it("increase over several work IDs", tokenIncrease, func(p *probe) {
		var last uint64
		next := func(workID, holderID string) {
			record := p.acquire(workID, holderID, over)
			p.Expect(record.FencingToken).To(gomega.BeNumerically(">", last), "token for %q", workID)
			last = record.FencingToken
		}
		for range 3 {
			for _, workID := range []string{"a", "b", "c"} {
				next(workID, "one")
				next(workID, "two")
			}
		}
	})

	s.it("increase after Forget of the highest", tokenDeletion, func(p *probe) {
		other := p.acquire("other work", "me", over)
		highest := p.acquire(work, "me", hour)
		p.forget(highest)
		p.Expect(p.acquire("other work", "me", hour).FencingToken).To(gomega.BeNumerically(">", highest.FencingToken))
		p.Expect(p.acquire(work, "me", hour).FencingToken).To(gomega.BeNumerically(">", highest.FencingToken))
		p.fenced(highest)
		p.fenced(other)
	})

	s.it("increase after Forget of the only row", tokenDeletion, func(p *probe) {
		only := p.acquire(work, "me", hour)
		p.forget(only)
		p.Expect(p.acquire(work, "me", hour).FencingToken).To(gomega.BeNumerically(">", only.FencingToken))
		p.fenced(only)
	})

	s.it("increase after Sweep of every row", tokenDeletion, func(p *probe) {
		p.acquire("a", "me", over)
		highest := p.acquire(work, "me", over)
		p.sweeps(everyRow, 2)
		p.Expect(p.acquire(work, "me", hour).FencingToken).To(gomega.BeNumerically(">", highest.FencingToken))
		p.fenced(highest)
	})

	s.it("belong to one work ID", tokenZero, func(p *probe) {
		a, b := p.acquire("a", "me", hour), p.acquire("b", "me", hour)
		a.FencingToken, b.FencingToken = b.FencingToken, a.FencingToken
		p.refusesAll(a)
		p.refusesAll(b)
	})

	s.it("of zero match nothing", tokenZero, func(p *probe) {
		mine := p.acquire(work, "me", hour)
		mine.FencingToken = 0
		p.refusesAll(backend.LeaseRecord{})
		p.refusesAll(mine)
	})

	s.it("that no store has drawn match nothing", tokenZero, func(p *probe) {
		mine := p.acquire(work, "me", hour)
		for _, token := range []uint64{math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
			mine.FencingToken = token
			p.refusesAll(mine)
		}
	})
}

// refusesAll checks that record is fenced whatever it is used for.
func (p *probe) refusesAll(record backend.LeaseRecord) {
	for _, op := range recordOperations {
		p.refused(op.call(p, situation{mine: record}), backend.ErrFenced)
	}
}
