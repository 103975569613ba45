package conformance_test

import (
	"testing"

	"github.com/onsi/ginkgo/v2"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/conformance"
	"github.com/aetomala/worklease/backend/memory"
)

// The whole test of a store, here of the memory store: in its own file both are declarations of the
// package, as in func TestConformance(t *testing.T) and var _ = ginkgo.Describe.
func ExampleRunSuite() {
	TestConformance := func(t *testing.T) { ginkgo.RunSpecs(t, "memory") }

	_ = ginkgo.Describe("memory", conformance.RunSuite(func() backend.Backend {
		return memory.New() // a store with no rows, for each spec
	}))

	_ = TestConformance
}
