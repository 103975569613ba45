package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

const (
	hour = time.Hour // the ttl of a lease that outlives its spec
	over = 0         // the ttl of a lease that is over from the start

	anyAge = -hour // a Retention that every row is older than
	recent = hour  // a Retention that no row is older than
)

// everyRow selects all that a Sweep may delete.
var everyRow = backend.SweepOptions{Retention: anyAge, IncludeExpired: true}

// A probe holds what one spec needs. Its methods do what they are named after and fail the spec if
// the store refuses.
type probe struct {
	gomega.Gomega
	ctx   context.Context
	store backend.Backend
}

func (p *probe) acquire(workID, holderID string, ttl time.Duration) backend.LeaseRecord {
	ginkgo.GinkgoHelper()
	record, err := p.store.Acquire(p.ctx, workID, holderID, ttl)
	p.Expect(err).NotTo(gomega.HaveOccurred(), "Acquire")
	p.Expect(record.WorkID).To(gomega.Equal(workID), "work ID of the record")
	p.Expect(record.HolderID).To(gomega.Equal(holderID), "holder ID of the record")
	p.Expect(record.FencingToken).To(gomega.BeNumerically(">", 0), "fencing token of the record")
	p.Expect(record.ExpiresAt).NotTo(gomega.BeZero(), "expiry of the record")
	return record
}

func (p *probe) checkpoint(record backend.LeaseRecord, state string, ttl time.Duration) {
	ginkgo.GinkgoHelper()
	p.Expect(p.store.Checkpoint(p.ctx, record, []byte(state), ttl)).To(gomega.Succeed(), "Checkpoint")
}

func (p *probe) renew(record backend.LeaseRecord, ttl time.Duration) {
	ginkgo.GinkgoHelper()
	p.Expect(p.store.Renew(p.ctx, record, ttl)).To(gomega.Succeed(), "Renew")
}

func (p *probe) release(record backend.LeaseRecord, mode backend.ExitMode) {
	ginkgo.GinkgoHelper()
	p.Expect(p.store.Release(p.ctx, record, mode)).To(gomega.Succeed(), "Release")
}

func (p *probe) forget(record backend.LeaseRecord) {
	ginkgo.GinkgoHelper()
	p.Expect(p.store.Forget(p.ctx, record)).To(gomega.Succeed(), "Forget")
}

func (p *probe) read(record backend.LeaseRecord) backend.Checkpoint {
	ginkgo.GinkgoHelper()
	found, err := p.store.ReadCheckpoint(p.ctx, record)
	p.Expect(err).NotTo(gomega.HaveOccurred(), "ReadCheckpoint")
	return found
}

// sweeps runs a Sweep that must delete want rows.
func (p *probe) sweeps(opts backend.SweepOptions, want int) {
	ginkgo.GinkgoHelper()
	deleted, err := p.store.Sweep(p.ctx, opts)
	p.Expect(err).NotTo(gomega.HaveOccurred(), "Sweep")
	p.Expect(deleted).To(gomega.BeEquivalentTo(want), "rows that Sweep says it deleted")
}

// reads checks what the holder of record reads.
func (p *probe) reads(record backend.LeaseRecord, want backend.Checkpoint) {
	ginkgo.GinkgoHelper()
	p.Expect(p.read(record)).To(gomega.Equal(want), "what %q reads", record.HolderID)
}

// finds lets a new holder acquire workID, which must be free, and checks what it finds.
func (p *probe) finds(workID string, want backend.Checkpoint) backend.LeaseRecord {
	ginkgo.GinkgoHelper()
	next := p.acquire(workID, "next", hour)
	p.reads(next, want)
	return next
}

// held checks that nobody else can acquire workID.
func (p *probe) held(workID string) {
	ginkgo.GinkgoHelper()
	_, err := p.store.Acquire(p.ctx, workID, "bystander", hour)
	p.refused(err, backend.ErrLeaseHeld)
}

// fenced checks that record matches no row.
func (p *probe) fenced(record backend.LeaseRecord) {
	ginkgo.GinkgoHelper()
	_, err := p.store.ReadCheckpoint(p.ctx, record)
	p.refused(err, backend.ErrFenced)
}

var sentinels = []error{
	backend.ErrFenced, backend.ErrLeaseHeld, backend.ErrLeaseExpired, backend.ErrInvalidExitMode,
}

// refused checks that err matches the sentinel want and no other.
func (p *probe) refused(err, want error) {
	ginkgo.GinkgoHelper()
	p.Expect(err).To(gomega.HaveOccurred(), "the store did what it must refuse with: %v", want)
	matched := make([]error, 0, len(sentinels))
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			matched = append(matched, sentinel)
		}
	}
	p.Expect(matched).To(gomega.Equal([]error{want}), "the sentinels that this error matches: %v", err)
}

// together calls f n times at once and returns the errors in the order of the calls.
func together(n int, f func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() {
			defer ginkgo.GinkgoRecover()
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	done.Wait()
	return errs
}
