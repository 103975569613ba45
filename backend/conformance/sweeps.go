package conformance

import (
	"fmt"
	"time"

	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

func (s suite) sweeps() {
	for _, include := range []bool{false, true} {
		for _, old := range []bool{true, false} {
			age, retention := "old enough", anyAge
			if !old {
				age, retention = "too recent", recent
			}
			name := fmt.Sprintf("select among rows that are %s, IncludeExpired %t", age, include)
			s.it(name, sweepSelection, func(p *probe) {
				retired, expired, others := p.everyKind()
				opts := backend.SweepOptions{Retention: retention, IncludeExpired: include}

				deleted, kept := []backend.LeaseRecord{}, others
				for _, c := range []struct {
					records []backend.LeaseRecord
					doomed  bool
				}{{retired, old}, {expired, old && include}} {
					if c.doomed {
						deleted = append(deleted, c.records...)
					} else {
						kept = append(kept, c.records...)
					}
				}

				p.sweeps(opts, len(deleted))
				for _, record := range deleted {
					p.fenced(record)
				}
				for _, record := range kept {
					p.Expect(p.read(record).State).To(gomega.Equal([]byte(record.WorkID)), "state of %q", record.WorkID)
				}
				p.sweeps(opts, 0)
			})
		}
	}

	s.it("count the age of a lapsed lease from its expiry, if that is later", sweepLapsed, func(p *probe) {
		asked := time.Now()
		p.acquire(work, "me", short)
		p.Eventually(p.deletes(backend.SweepOptions{Retention: short, IncludeExpired: true})).
			WithTimeout(pollLimit).WithPolling(poll).Should(gomega.BeEquivalentTo(1))
		p.Expect(time.Since(asked)).To(gomega.BeNumerically(">=", 2*short-slack),
			"time from the Acquire to the deletion: the ttl, and then Retention")
	})

	s.it("count the age of a lapsed lease from its update, if that is later", sweepUpdate, func(p *probe) {
		mine := p.acquire(work, "me", -2*hour)
		p.sweeps(backend.SweepOptions{Retention: recent, IncludeExpired: true}, 0)
		p.checkpoint(mine, "state", -2*hour)
		p.sweeps(backend.SweepOptions{Retention: recent, IncludeExpired: true}, 0)
		p.finds(work, left("state", backend.ExitExpired, "me"))
	})

	s.it("count the age of a retired row from its Release, not from its Acquire", sweepUpdate, func(p *probe) {
		mine := p.acquire(work, "me", hour)
		p.elapse(short)
		asked := time.Now()
		p.release(mine, backend.ExitRetired)
		p.Eventually(p.deletes(backend.SweepOptions{Retention: short})).
			WithTimeout(pollLimit).WithPolling(poll).Should(gomega.BeEquivalentTo(1))
		p.Expect(time.Since(asked)).To(gomega.BeNumerically(">=", short-slack), "time from the Release to the deletion")
	})

	s.it("do not take a Renew for an update", sweepRenewal, func(p *probe) {
		mine := p.acquire(work, "me", hour)
		p.elapse(short)
		p.renew(mine, -hour)
		p.sweeps(backend.SweepOptions{Retention: short / 2, IncludeExpired: true}, 1)
		p.fenced(mine)
	})

	s.it("of an empty store return zero", sweepNothing, func(p *probe) {
		p.sweeps(everyRow, 0)
	})
}

// everyKind stores two rows of each kind that a Sweep tells apart, each with its work ID as state.
func (p *probe) everyKind() (retired, expired, others []backend.LeaseRecord) {
	row := func(kind string, i int) backend.LeaseRecord {
		record := p.acquire(fmt.Sprint(kind, " ", i), "me", hour)
		p.checkpoint(record, record.WorkID, hour)
		return record
	}
	for i := range 2 {
		gone := row("retired", i)
		p.release(gone, backend.ExitRetired)
		retired = append(retired, gone)

		lapsed := row("expired", i)
		p.renew(lapsed, over)
		expired = append(expired, lapsed)

		finished, abandoned := row("finished", i), row("abandoned", i)
		p.release(finished, backend.ExitFinished)
		p.release(abandoned, backend.ExitAbandoned)

		// One whose predecessor retired: what the row says of it is no exit of the holder's.
		p.release(row("held after retired", i), backend.ExitRetired)
		others = append(others, row("held", i), row("held after retired", i), finished, abandoned)
	}
	return retired, expired, others
}

// deletes returns a poll that sweeps and reports how many rows went.
func (p *probe) deletes(opts backend.SweepOptions) func(gomega.Gomega) int64 {
	return func(g gomega.Gomega) int64 {
		deleted, err := p.store.Sweep(p.ctx, opts)
		g.Expect(err).NotTo(gomega.HaveOccurred(), "Sweep")
		return deleted
	}
}

// elapse waits for d.
func (p *probe) elapse(d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.ctx.Done():
	}
}
