package conformance

import (
	"fmt"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

// acquireRead acquires workID, which must be free, and checks what is returned.
func (p *probe) acquireRead(workID, holderID string, ttl time.Duration, want backend.Checkpoint) backend.LeaseRecord {
	ginkgo.GinkgoHelper()
	record, found, err := capability[backend.AcquireReader](p).AcquireRead(p.ctx, workID, holderID, ttl)
	p.Expect(tried(err)).NotTo(gomega.HaveOccurred(), "AcquireRead")
	p.Expect(record.WorkID).To(gomega.Equal(workID), "work ID of the record")
	p.Expect(record.HolderID).To(gomega.Equal(holderID), "holder ID of the record")
	p.Expect(found).To(gomega.Equal(want), "what AcquireRead returns")
	p.reads(record, want)
	return record
}

func (s suite) acquiringReads() {
	for _, r := range rowStates {
		able(s, "of "+r.name+" "+succeed(r.acquire.want), acquireRead, func(p *probe, c backend.AcquireReader) {
			row := r.setUp(p)
			if r.acquire.want != nil {
				record, found, err := c.AcquireRead(p.ctx, work, "another", hour)
				p.refused(tried(err), r.acquire.want)
				p.Expect(record).To(gomega.BeZero(), "record beside an error")
				p.Expect(found).To(gomega.BeZero(), "checkpoint beside an error")
				p.unchanged(row)
				return
			}
			record := p.acquireRead(work, "another", hour, row.next)
			p.held(work)
			if row.row() {
				p.Expect(record.FencingToken).To(gomega.BeNumerically(">", row.owner.FencingToken))
				p.fenced(row.owner)
			}
		})
	}

	able(s, "return a state of the caller's own", stateFresh, func(p *probe, c backend.AcquireReader) {
		mine := p.acquire(work, "me", hour)
		p.checkpoint(mine, "state", hour)
		p.release(mine, backend.ExitFinished)
		next, found, err := c.AcquireRead(p.ctx, work, "next", hour)
		p.Expect(tried(err)).NotTo(gomega.HaveOccurred())
		copy(found.State, "STATE")
		p.reads(next, left("state", backend.ExitFinished, "me"))
	})

	able(s, "return the bytes that were stored", stateExact, func(p *probe, _ backend.AcquireReader) {
		states := []string{"\x00\x01\xff\x5c", `\x4142`, `\000`, "\xff\xfe not UTF-8", string(randomBytes(1 << 16))}
		mine := p.acquire(work, "me", hour)
		for _, state := range states {
			p.checkpoint(mine, state, hour)
			p.release(mine, backend.ExitFinished)
			mine = p.acquireRead(work, "me", hour, left(state, backend.ExitFinished, "me"))
		}
	})

	able(s, "of 64 claimants have one winner each, which reads what its predecessor left", raceAcquire, func(p *probe, c backend.AcquireReader) {
		p.release(p.acquire(work, "first", hour), backend.ExitFinished)
		predecessor, state := "first", ""
		for round := range rounds {
			var (
				mu    sync.Mutex
				won   []backend.LeaseRecord
				reads backend.Checkpoint
			)
			errs := together(claimants, func(i int) error {
				record, found, err := c.AcquireRead(p.ctx, work, fmt.Sprint(round, " ", i), hour)
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					won, reads = append(won, record), found
				}
				return tried(err)
			})
			p.winner(errs, backend.ErrLeaseHeld)
			want := backend.Checkpoint{PrevExit: backend.ExitFinished, PrevHolderID: predecessor}
			if state != "" {
				want.State = []byte(state)
			}
			p.Expect(reads).To(gomega.Equal(want))
			predecessor, state = won[0].HolderID, fmt.Sprint("state of round ", round)
			p.checkpoint(won[0], state, hour)
			p.release(won[0], backend.ExitFinished)
		}
	})
}

// succeed is verdict for several.
func succeed(want error) string {
	if want == nil {
		return "succeed"
	}
	return "are refused: held"
}
