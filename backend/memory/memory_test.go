package memory_test

import (
	"testing"

	"github.com/onsi/ginkgo/v2"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/conformance"
	"github.com/aetomala/worklease/backend/memory"
)

func TestConformance(t *testing.T) { ginkgo.RunSpecs(t, "memory") }

var _ = ginkgo.Describe("memory", conformance.RunSuite(func() backend.Backend { return memory.New() }))
