package conformance

import (
	"bytes"
	"crypto/rand"

	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

func (s suite) checkpoints() {
	for _, exit := range []backend.ExitMode{backend.ExitFinished, backend.ExitAbandoned, backend.ExitRetired, backend.ExitExpired} {
		s.it("survive a holder that leaves as "+exit.String(), stateSurvives, func(p *probe) {
			one := p.acquire(work, "one", hour)
			p.checkpoint(one, "state", hour)
			p.leaves(one, exit)

			two := p.acquire(work, "two", hour)
			p.reads(two, left("state", exit, "one"))
			p.leaves(two, exit)

			three := p.acquire(work, "three", hour)
			p.reads(three, left("state", exit, "two"))
		})
	}

	s.it("replace the one before", checkpointLive, func(p *probe) {
		mine := p.acquire(work, "me", hour)
		for _, state := range []string{"a longer state", "short", "middling"} {
			p.checkpoint(mine, state, hour)
			p.reads(mine, backend.Checkpoint{State: []byte(state)})
		}
	})

	s.it("do not share the slice that was stored", stateOwned, func(p *probe) {
		mine := p.acquire(work, "me", hour)
		state := []byte("state")
		p.Expect(p.store.Checkpoint(p.ctx, mine, state, hour)).To(gomega.Succeed())
		copy(state, "STATE")
		p.reads(mine, backend.Checkpoint{State: []byte("state")})
		p.release(mine, backend.ExitFinished)
		p.finds(work, left("state", backend.ExitFinished, "me"))
	})

	s.it("do not share the slice that is read", stateFresh, func(p *probe) {
		mine := p.acquire(work, "me", hour)
		p.checkpoint(mine, "state", hour)
		first, second := p.read(mine).State, p.read(mine).State
		copy(first, "STATE")
		_ = append(first[:0], "STATE and more"...)
		p.Expect(second).To(gomega.Equal([]byte("state")), "a slice read earlier")
		p.reads(mine, backend.Checkpoint{State: []byte("state")})
	})

	for name, none := range map[string][]byte{"nil": nil, "empty": {}} {
		s.it("of "+name+" state are read as nil", stateNone, func(p *probe) {
			mine := p.acquire(work, "me", hour)
			p.Expect(p.store.Checkpoint(p.ctx, mine, none, hour)).To(gomega.Succeed())
			p.reads(mine, backend.Checkpoint{})
		})

		s.it("of "+name+" state clear the state before", stateNone, func(p *probe) {
			row := live(p)
			p.Expect(p.store.Checkpoint(p.ctx, row.mine, none, hour)).To(gomega.Succeed())
			row.reads.State, row.next.State = nil, nil
			p.unchanged(row)
		})
	}

	s.it("keep 1 MiB of random bytes", stateExact, func(p *probe) {
		state := randomBytes(1 << 20)
		mine := p.acquire(work, "me", hour)
		p.Expect(p.store.Checkpoint(p.ctx, mine, state, hour)).To(gomega.Succeed())
		p.Expect(bytes.Equal(p.read(mine).State, state)).To(gomega.BeTrue(), "the state read is the state stored")
		p.release(mine, backend.ExitFinished)
		next := p.acquire(work, "next", hour)
		p.Expect(bytes.Equal(p.read(next).State, state)).To(gomega.BeTrue(), "the state read after the handover is the state stored")
	})

	s.it("keep bytes that other layers treat specially", stateExact, func(p *probe) {
		every := make([]byte, 256)
		for i := range every {
			every[i] = byte(i)
		}
		mine := p.acquire(work, "me", hour)
		for _, state := range []string{
			"\x00\x01\xff\x5c",
			"\x00",
			"trailing zero\x00",
			"trailing space ",
			"\xff\xfe not UTF-8",
			`\x4142`, // the hexadecimal form of PostgreSQL's bytea
			`\000`,
			"NULL",
			"line\r\nline\n",
			string(every),
		} {
			p.checkpoint(mine, state, hour)
			p.reads(mine, backend.Checkpoint{State: []byte(state)})
		}
	})
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
