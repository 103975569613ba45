package conformance

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

// batchOfOne is to do what Renew does.
var batchOfOne = operation{
	name:   "RenewBatch",
	expect: func(r rowState) outcome { return outcome{r.renew.want, batchVerdict} },
	call: func(p *probe, s situation) error {
		c := capability[backend.BatchRenewer](p)
		verdicts, err := c.RenewBatch(p.ctx, []backend.LeaseRecord{s.mine}, s.opposite())
		if err != nil {
			p.Expect(verdicts).To(gomega.BeEmpty(), "verdicts beside an error")
			return tried(err)
		}
		p.Expect(verdicts).To(gomega.HaveLen(1), "verdicts")
		return verdicts[0]
	},
	effect: func(p *probe, s situation) {
		s.held = false
		s.next.PrevExit = backend.ExitExpired
		p.unchanged(s)
	},
}

// renewBatch returns the verdicts of a RenewBatch that must have them.
func (p *probe) renewBatch(records []backend.LeaseRecord, ttl time.Duration) []error {
	ginkgo.GinkgoHelper()
	verdicts, err := capability[backend.BatchRenewer](p).RenewBatch(p.ctx, records, ttl)
	p.Expect(tried(err)).NotTo(gomega.HaveOccurred(), "RenewBatch")
	p.Expect(verdicts).To(gomega.HaveLen(len(records)), "verdicts")
	return verdicts
}

func (s suite) batches() {
	able(s, "have a verdict on each lease, in their order", batchVerdict, func(p *probe, _ backend.BatchRenewer) {
		var (
			records []backend.LeaseRecord
			want    []error
		)
		for i, kind := range []error{
			nil, backend.ErrFenced, nil, backend.ErrLeaseExpired, backend.ErrLeaseExpired, nil, backend.ErrFenced, nil, backend.ErrLeaseExpired,
		} {
			workID := fmt.Sprint("work ", (i*7)%10) // in no order of their own
			mine := p.acquire(workID, "me", hour)
			switch {
			case errors.Is(kind, backend.ErrFenced):
				p.leaves(mine, backend.ExitExpired)
				p.acquire(workID, "other", hour)
			case errors.Is(kind, backend.ErrLeaseExpired):
				p.leaves(mine, []backend.ExitMode{backend.ExitExpired, backend.ExitFinished}[i%2])
			}
			records, want = append(records, mine), append(want, kind)
		}
		p.decides(records, over, want)
		for i, record := range records {
			if want[i] == nil {
				p.finds(record.WorkID, backend.Checkpoint{PrevExit: backend.ExitExpired, PrevHolderID: "me"})
			} else if errors.Is(want[i], backend.ErrFenced) {
				p.held(record.WorkID)
			}
		}
	})

	able(s, "of 300 leases renew all of them", batchVerdict, func(p *probe, _ backend.BatchRenewer) {
		records := p.acquireMany(300)
		p.decides(records, over, make([]error, len(records)))
		for _, record := range records {
			p.refused(p.store.Renew(p.ctx, record, hour), backend.ErrLeaseExpired)
		}
	})

	able(s, "of no lease have no verdict", batchNone, func(p *probe, _ backend.BatchRenewer) {
		p.Expect(p.renewBatch(nil, hour)).To(gomega.BeEmpty())
		p.Expect(p.renewBatch([]backend.LeaseRecord{}, hour)).To(gomega.BeEmpty())
	})

	able(s, "have the same verdict on a lease each time that it occurs", batchTwice, func(p *probe, _ backend.BatchRenewer) {
		mine := p.acquire(work, "me", hour)
		elsewhere := mine
		elsewhere.ExpiresAt = time.Time{}
		impostor := mine
		impostor.HolderID = "impostor"
		p.decides([]backend.LeaseRecord{mine, impostor, mine, elsewhere, impostor}, hour,
			[]error{nil, backend.ErrFenced, nil, nil, backend.ErrFenced})
	})

	able(s, "tell IDs apart", idsExact, func(p *probe, _ backend.BatchRenewer) {
		var (
			records []backend.LeaseRecord
			want    []error
		)
		for i, id := range unlikeIDs {
			mine := p.acquire(id, unlikeIDs[len(unlikeIDs)-1-i], hour)
			records, want = append(records, mine), append(want, nil)
			for _, other := range lookalikes(mine.HolderID, unlikeIDs[(i+1)%len(unlikeIDs)]) {
				impostor := mine
				impostor.HolderID = other
				if other != mine.HolderID {
					records, want = append(records, impostor), append(want, backend.ErrFenced)
				}
			}
		}
		p.decides(records, hour, want)
	})

	able(s, "fence tokens that no store has drawn", tokenZero, func(p *probe, _ backend.BatchRenewer) {
		mine := p.acquire(work, "me", hour)
		records, want := []backend.LeaseRecord{mine, {}}, []error{nil, backend.ErrFenced}
		for _, token := range []uint64{0, mine.FencingToken + 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
			mine.FencingToken = token
			records, want = append(records, mine), append(want, backend.ErrFenced)
		}
		p.decides(records, hour, want)
	})

	able(s, "are no update", sweepRenewal, func(p *probe, _ backend.BatchRenewer) {
		mine := p.acquire(work, "me", hour)
		p.elapse(short)
		p.decides([]backend.LeaseRecord{mine}, -hour, []error{nil})
		p.sweeps(backend.SweepOptions{Retention: short / 2, IncludeExpired: true}, 1)
		p.fenced(mine)
	})

	able(s, "beside others of the same leases renew each or leave it alone", batchBusy, func(p *probe, c backend.BatchRenewer) {
		records := p.acquireMany(50)
		backwards := slices.Clone(records)
		slices.Reverse(backwards)
		for range rounds {
			errs := together(6, func(i int) error {
				batch := records
				if i%2 == 1 {
					batch = backwards
				}
				verdicts, err := c.RenewBatch(p.ctx, batch, hour)
				for _, verdict := range verdicts {
					if !errors.Is(verdict, backend.ErrBusy) {
						err = errors.Join(err, verdict)
					}
				}
				return tried(err)
			})
			p.Expect(errors.Join(errs...)).NotTo(gomega.HaveOccurred())
		}
		for _, record := range records {
			p.renew(record, hour)
		}
	})
}

// decides checks the verdicts of a RenewBatch.
func (p *probe) decides(records []backend.LeaseRecord, ttl time.Duration, want []error) {
	ginkgo.GinkgoHelper()
	given := slices.Clone(records)
	for i, verdict := range p.renewBatch(records, ttl) {
		if want[i] == nil {
			p.Expect(verdict).NotTo(gomega.HaveOccurred(), "the verdict on %q of %q", records[i].WorkID, records[i].HolderID)
		} else {
			p.refused(verdict, want[i])
		}
	}
	p.Expect(records).To(gomega.Equal(given), "the caller's records")
}

// acquireMany acquires n work IDs.
func (p *probe) acquireMany(n int) []backend.LeaseRecord {
	ginkgo.GinkgoHelper()
	records := make([]backend.LeaseRecord, 0, n)
	for i := range n {
		records = append(records, p.acquire(fmt.Sprint("work ", i), fmt.Sprint("holder ", i%3), hour))
	}
	return records
}
