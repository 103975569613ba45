// Package conformance checks that a store keeps the contract of [backend.Backend].
//
// The author of a store runs it from a Ginkgo suite and needs nothing else:
//
//	func TestConformance(t *testing.T) { ginkgo.RunSpecs(t, "mystore") }
//
//	var _ = ginkgo.Describe("mystore", conformance.RunSuite(func() backend.Backend {
//		return mystore.New(emptyDatabase())
//	}))
//
// The suite walks the table of the contract, every state of a row against every operation, and then
// the rules beneath the table. Each spec carries the sentence that it enforces and prints it when it
// fails, also when the store panicked or hung.
package conformance

import (
	"context"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

// RunSuite returns the body of a Describe that holds the specs. newBackend is called once in each of
// them and returns a store with no rows; what it opens it closes with [ginkgo.DeferCleanup].
//
// Specs may run in any order and, where the stores that newBackend returns share nothing, in
// parallel. None needs control of the store's clock, nor cares by how much it is off. The few that wait
// for time to pass wait for 50 ms or so, and assert only what must not happen too early: a slow store
// passes as well.
//
// A store that does not know who holds a lease returns a bare [backend.ErrLeaseHeld] and passes. The specs
// of an optional capability that [backend.As] does not find, or that returns an error matching
// [errors.ErrUnsupported], are skipped. [backend.Transactional] has none.
func RunSuite(newBackend func() backend.Backend) func() {
	s := suite{newBackend}
	return func() {
		ginkgo.Describe("row states", s.rowStates)
		ginkgo.Describe("tokens", s.tokens)
		ginkgo.Describe("exits", s.exits)
		ginkgo.Describe("releases", s.releases)
		ginkgo.Describe("checkpoints", s.checkpoints)
		ginkgo.Describe("lapsing", s.lapsing)
		ginkgo.Describe("sweeps", s.sweeps)
		ginkgo.Describe("errors", s.errors)
		ginkgo.Describe("IDs", s.ids)
		ginkgo.Describe("contexts", s.contexts)
		ginkgo.Describe("races", s.races)
		s.capabilities()
	}
}

type suite struct {
	newBackend func() backend.Backend
}

// A spec of a store that hangs fails after specLimit. Polls give up earlier.
const (
	specLimit = time.Minute
	pollLimit = 10 * time.Second
)

// it declares one spec. The sentence is a report entry rather than an annotation of each assertion,
// because Ginkgo prints entries for every kind of failure.
func (s suite) it(name string, r rule, body func(p *probe)) {
	s.declare(1, name, r, body)
}

// declare is for callers that declare specs for callers of their own, which are above them by offset.
func (s suite) declare(offset int, name string, r rule, body func(p *probe)) {
	ginkgo.It(name, func(ctx ginkgo.SpecContext) {
		ginkgo.AddReportEntry("the contract says", string(r), ginkgo.ReportEntryVisibilityFailureOrVerbose)
		s.run(ctx, body)
	}, ginkgo.Offset(offset+1), ginkgo.SpecTimeout(specLimit))
}

func (s suite) run(ctx context.Context, body func(p *probe)) {
	g := gomega.NewGomega(ginkgo.Fail) // a store's suite need not register a fail handler
	store := s.newBackend()
	g.Expect(store).NotTo(gomega.BeNil(), "newBackend returned nil")
	body(&probe{Gomega: g, ctx: ctx, store: store})
}
