package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

const (
	claimants = 64
	rounds    = 10
)

func (s suite) races() {
	s.it("of 64 claimants for a free lease have one winner each", raceAcquire, func(p *probe) {
		var last backend.LeaseRecord
		for round := range rounds {
			won := p.claim(claimants, func(i int) string { return fmt.Sprint(round, " ", i) })
			p.Expect(won).To(gomega.HaveLen(1), "winners")
			p.Expect(won[0].FencingToken).To(gomega.BeNumerically(">", last.FencingToken))
			last = won[0]
			p.release(last, backend.ExitFinished)
		}
	})

	s.it("of 64 claimants for work that has no row have one winner each", raceAcquire, func(p *probe) {
		for range rounds {
			won := p.claim(claimants, func(i int) string { return fmt.Sprint(i) })
			p.Expect(won).To(gomega.HaveLen(1), "winners")
			p.forget(won[0])
		}
	})

	s.it("of 64 claimants never give a later acquisition the smaller token", tokenLocked, s.tokensUnderContention)

	s.it("of claimants and a Checkpoint for a lapsed lease have one winner each", raceRevive, func(p *probe) {
		for round := range 2 * rounds {
			p.reviveRace(fmt.Sprint("work ", round), round%contenders)
		}
	})

	s.it("of Renew, Checkpoint and Release leave the lease released", raceLate, func(p *probe) {
		for round := range rounds {
			p.lateRace(fmt.Sprint("work ", round))
		}
	})

	s.it("of several Releases record one", raceRelease, func(p *probe) {
		for round := range rounds {
			workID := fmt.Sprint("work ", round)
			mine := p.acquire(workID, "me", hour)
			errs := together(6, func(i int) error {
				return p.store.Release(p.ctx, mine, declarable[i%len(declarable)])
			})
			recorded := p.winner(errs, backend.ErrLeaseExpired)
			p.finds(workID, backend.Checkpoint{PrevExit: declarable[recorded%len(declarable)], PrevHolderID: "me"})
		}
	})

	s.it("of several Forgets remove one row", raceForget, func(p *probe) {
		for range rounds {
			mine := p.acquire(work, "me", hour)
			errs := together(6, func(int) error { return p.store.Forget(p.ctx, mine) })
			p.winner(errs, backend.ErrFenced)
		}
	})

	s.it("of several Sweeps count each row once", raceSweep, func(p *probe) {
		const rows = 30
		for i := range rows {
			p.acquire(fmt.Sprint("work ", i), "me", over)
		}
		p.acquire(work, "me", hour)
		var total atomic.Int64
		for _, err := range together(4, func(int) error {
			deleted, err := p.store.Sweep(p.ctx, everyRow)
			total.Add(deleted)
			return err
		}) {
			p.Expect(err).NotTo(gomega.HaveOccurred(), "Sweep")
		}
		p.Expect(total.Load()).To(gomega.BeEquivalentTo(rows), "rows that the Sweeps say they deleted")
	})

	s.it("of a Sweep, a claimant and a Checkpoint leave the winner its lease", raceSweepHeld, func(p *probe) {
		for round := range 2 * rounds {
			p.sweepRace(fmt.Sprint("work ", round))
		}
	})

	s.it("of Checkpoints and a reader mix no states", raceCheckpoints, func(p *probe) {
		mine := p.acquire(work, "me", hour)
		const writers, readers = 4, 4
		for _, err := range together(writers+readers, func(i int) error {
			for range rounds {
				if i < writers {
					state := bytes.Repeat([]byte{byte('a' + i)}, 1000*(i+1))
					if err := p.store.Checkpoint(p.ctx, mine, state, hour); err != nil {
						return err
					}
					continue
				}
				found, err := p.store.ReadCheckpoint(p.ctx, mine)
				if err != nil {
					return err
				}
				if state := found.State; len(state) > 0 && !bytes.Equal(state, bytes.Repeat(state[:1], 1000*int(state[0]-'a'+1))) {
					return fmt.Errorf("read %d bytes that begin with %q: no Checkpoint stored that", len(state), state[:1])
				}
			}
			return nil
		}) {
			p.Expect(err).NotTo(gomega.HaveOccurred())
		}
	})
}

// sweepRace lets workID, which has lapsed, be swept, acquired and revived at once.
func (p *probe) sweepRace(workID string) {
	revived := p.acquire(workID, "reviver", over)
	var acquired backend.LeaseRecord
	errs := together(3, func(i int) (err error) {
		switch i {
		case 0:
			_, err = p.store.Sweep(p.ctx, everyRow)
		case 1:
			acquired, err = p.store.Acquire(p.ctx, workID, "claimant", hour)
		case 2:
			err = p.store.Checkpoint(p.ctx, revived, nil, hour)
		}
		return err
	})
	p.Expect(errs[0]).NotTo(gomega.HaveOccurred(), "Sweep")
	if errs[1] == nil {
		p.refused(errs[2], backend.ErrFenced)
		p.renew(acquired, hour)
		return
	}
	p.refused(errs[1], backend.ErrLeaseHeld)
	p.Expect(errs[2]).NotTo(gomega.HaveOccurred(), "Checkpoint")
	p.renew(revived, hour)
}

// claim lets n claimants acquire work at once and returns the records of those that succeeded.
func (p *probe) claim(n int, holderID func(i int) string) []backend.LeaseRecord {
	records := make([]backend.LeaseRecord, n)
	var won []backend.LeaseRecord
	for i, err := range together(n, func(i int) (err error) {
		records[i], err = p.store.Acquire(p.ctx, work, holderID(i), hour)
		return err
	}) {
		if err == nil {
			won = append(won, records[i])
		} else {
			p.refused(err, backend.ErrLeaseHeld)
		}
	}
	return won
}

// winner checks that one call succeeded and the others were refused, and returns its index.
func (p *probe) winner(errs []error, refusal error) int {
	winners := []int{}
	for i, err := range errs {
		if err == nil {
			winners = append(winners, i)
		} else {
			p.refused(err, refusal)
		}
	}
	p.Expect(winners).To(gomega.HaveLen(1), "calls that succeeded")
	return winners[0]
}

// tokensUnderContention takes a lease over that is always over already, so that every claim succeeds
// and each success is another takeover.
func (s suite) tokensUnderContention(p *probe) {
	type takeover struct {
		record backend.LeaseRecord // with a holder ID of its own
		before string              // the predecessor's holder ID, if it could still be read
	}
	const each = 4
	var (
		highest   atomic.Uint64 // of the tokens that a finished Acquire returned
		takeovers [claimants][each]takeover
	)
	for _, err := range together(claimants, func(i int) error {
		for j := range each {
			returned := highest.Load()
			record, err := p.store.Acquire(p.ctx, work, fmt.Sprint(i, " ", j), over)
			if err != nil {
				return err
			}
			if record.FencingToken <= returned {
				return fmt.Errorf("token %d was drawn after %d had been returned", record.FencingToken, returned)
			}
			for seen := returned; seen < record.FencingToken && !highest.CompareAndSwap(seen, record.FencingToken); {
				seen = highest.Load()
			}
			found, err := p.store.ReadCheckpoint(p.ctx, record)
			if err != nil && !errors.Is(err, backend.ErrFenced) {
				return err
			}
			takeovers[i][j] = takeover{record, found.PrevHolderID}
		}
		return nil
	}) {
		p.Expect(err).NotTo(gomega.HaveOccurred())
	}

	tokens := make(map[string]uint64) // by holder ID
	for _, several := range takeovers {
		for _, t := range several {
			tokens[t.record.HolderID] = t.record.FencingToken
		}
	}
	given := make(map[uint64]bool)
	for _, several := range takeovers {
		for _, t := range several {
			token := t.record.FencingToken
			if t.before != "" && token <= tokens[t.before] {
				ginkgo.Fail(fmt.Sprintf("a claimant took over with token %d from one with token %d", token, tokens[t.before]))
			}
			if given[token] {
				ginkgo.Fail(fmt.Sprintf("token %d was given twice", token))
			}
			given[token] = true
		}
		last := several[each-1].record
		if last.FencingToken == highest.Load() {
			p.read(last)
		} else {
			p.fenced(last)
		}
	}
}

// contenders are the claimants and the reviver of reviveRace.
const contenders = 7

// reviveRace lets claimants and the last holder's Checkpoint race for a lapsed lease. The reviver starts
// in a place of its own each time, because schedulers have habits.
func (p *probe) reviveRace(workID string, reviver int) {
	mine := p.acquire(workID, "me", hour)
	p.checkpoint(mine, "old", over)
	records := make([]backend.LeaseRecord, contenders)
	errs := together(contenders, func(i int) (err error) {
		if i == reviver {
			return p.store.Checkpoint(p.ctx, mine, []byte("new"), hour)
		}
		records[i], err = p.store.Acquire(p.ctx, workID, fmt.Sprint(i), hour)
		return err
	})

	if errs[reviver] != nil {
		p.refused(errs[reviver], backend.ErrFenced)
	}
	winners := []int{}
	for i, err := range errs {
		if err == nil {
			winners = append(winners, i)
		} else if i != reviver {
			p.refused(err, backend.ErrLeaseHeld)
		}
	}
	p.Expect(winners).To(gomega.HaveLen(1), "winners, of whom %d is the reviver", reviver)
	if winners[0] == reviver {
		p.reads(mine, backend.Checkpoint{State: []byte("new")})
		p.held(workID)
		return
	}
	p.reads(records[winners[0]], left("old", backend.ExitExpired, "me"))
	p.fenced(mine)
}

// lateRace lets a Renew and a Checkpoint race with the Release of the same tenure.
func (p *probe) lateRace(workID string) {
	mine := p.acquire(workID, "me", hour)
	p.checkpoint(mine, "old", hour)
	const renew, checkpoint, release = 0, 1, 2
	errs := together(3, func(i int) error {
		switch i {
		case renew:
			return p.store.Renew(p.ctx, mine, hour)
		case checkpoint:
			return p.store.Checkpoint(p.ctx, mine, []byte("new"), hour)
		default:
			return p.store.Release(p.ctx, mine, backend.ExitRetired)
		}
	})

	p.Expect(errs[release]).NotTo(gomega.HaveOccurred(), "Release")
	for _, err := range errs[:release] {
		if err != nil {
			p.refused(err, backend.ErrLeaseExpired)
		}
	}
	state := "old"
	if errs[checkpoint] == nil {
		state = "new"
	}
	p.finds(workID, left(state, backend.ExitRetired, "me"))
}
