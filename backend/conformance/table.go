package conformance

import (
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

// An operation of the table: call runs it with s.mine, and effect checks what it did if it succeeded.
type operation struct {
	name   string
	expect func(rowState) outcome
	call   func(*probe, situation) error
	effect func(*probe, situation)
}

// opposite is a ttl that shows: it ends a lease that is held, and holds one that is over.
func (s situation) opposite() time.Duration {
	if s.held {
		return over
	}
	return hour
}

// otherExit is an exit that shows: it is not the one that the next holder would find.
func (s situation) otherExit() backend.ExitMode {
	if s.next.PrevExit == backend.ExitAbandoned {
		return backend.ExitRetired
	}
	return backend.ExitAbandoned
}

// recordOperations are the calls that are conditional on a record, in the interface's order.
var recordOperations = []operation{
	{
		name:   "Checkpoint",
		expect: func(r rowState) outcome { return r.checkpoint },
		call: func(p *probe, s situation) error {
			return p.store.Checkpoint(p.ctx, s.mine, []byte("new state"), s.opposite())
		},
		effect: func(p *probe, s situation) {
			s.reads.State = []byte("new state")
			s.next.State = []byte("new state")
			s.next.PrevExit = backend.ExitFinished
			s.held = !s.held
			if !s.held {
				s.next.PrevExit = backend.ExitExpired
			}
			p.unchanged(s)
		},
	},
	{
		name:   "Renew",
		expect: func(r rowState) outcome { return r.renew },
		call: func(p *probe, s situation) error {
			return p.store.Renew(p.ctx, s.mine, s.opposite())
		},
		effect: func(p *probe, s situation) {
			s.held = false
			s.next.PrevExit = backend.ExitExpired
			p.unchanged(s)
		},
	},
	{
		name:   "Release",
		expect: func(r rowState) outcome { return r.release },
		call: func(p *probe, s situation) error {
			return p.store.Release(p.ctx, s.mine, s.otherExit())
		},
		effect: func(p *probe, s situation) {
			s.held = false
			s.next.PrevExit = backend.ExitAbandoned
			p.unchanged(s)
		},
	},
	{
		name:   "ReadCheckpoint",
		expect: func(r rowState) outcome { return r.read },
		call: func(p *probe, s situation) error {
			_, err := p.store.ReadCheckpoint(p.ctx, s.mine)
			return err
		},
		effect: (*probe).unchanged,
	},
	{
		name:   "Forget",
		expect: func(r rowState) outcome { return r.forget },
		call:   func(p *probe, s situation) error { return p.store.Forget(p.ctx, s.mine) },
		effect: (*probe).gone,
	},
}

// gone checks that s is left without a row.
func (p *probe) gone(s situation) {
	ginkgo.GinkgoHelper()
	p.fenced(s.owner)
	p.finds(work, backend.Checkpoint{})
}

func (s suite) rowStates() {
	for _, r := range rowStates {
		ginkgo.Describe("with "+r.name, func() {
			s.claim("Acquire by another", r, r.acquire, func(situation) string { return "another" })
			s.claim("Acquire by the same holder ID", r, r.again, func(s situation) string {
				if s.row() {
					return s.owner.HolderID
				}
				return s.mine.HolderID
			})
			for _, op := range slices.Concat(recordOperations, capableOperations) {
				expect := op.expect(r)
				s.it(op.name+" "+verdict(expect.want), expect.rule, func(p *probe) {
					row := r.setUp(p)
					err := op.call(p, row)
					if expect.want != nil {
						p.refused(err, expect.want)
						p.unchanged(row)
						return
					}
					p.Expect(err).NotTo(gomega.HaveOccurred(), op.name)
					op.effect(p, row)
				})
			}
			s.sweep("Sweep", r, r.plain, backend.SweepOptions{Retention: anyAge})
			s.sweep("Sweep with IncludeExpired", r, r.inclusive, everyRow)
		})
	}
}

func (s suite) claim(name string, r rowState, expect outcome, holderID func(situation) string) {
	s.it(name+" "+verdict(expect.want), expect.rule, func(p *probe) {
		row := r.setUp(p)
		if expect.want != nil {
			_, err := p.store.Acquire(p.ctx, work, holderID(row), hour)
			p.refused(err, expect.want)
			p.unchanged(row)
			return
		}
		record := p.acquire(work, holderID(row), hour)
		p.reads(record, row.next)
		p.held(work)
		if row.row() {
			p.Expect(record.FencingToken).To(gomega.BeNumerically(">", row.owner.FencingToken))
			p.fenced(row.owner)
		}
	})
}

func (s suite) sweep(name string, r rowState, expect sweepOutcome, opts backend.SweepOptions) {
	verdict := " deletes nothing"
	if expect.deleted {
		verdict = " deletes the row"
	}
	s.it(name+verdict, expect.rule, func(p *probe) {
		row := r.setUp(p)
		if expect.deleted {
			p.sweeps(opts, 1)
			p.gone(row)
			return
		}
		p.sweeps(opts, 0)
		p.unchanged(row)
	})
}

func verdict(want error) string {
	switch want {
	case backend.ErrFenced:
		return "is refused: fenced"
	case backend.ErrLeaseHeld:
		return "is refused: held"
	case backend.ErrLeaseExpired:
		return "is refused: expired"
	default:
		return "succeeds"
	}
}
