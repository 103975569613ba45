package conformance

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/onsi/ginkgo/v2"

	"github.com/aetomala/worklease/backend"
)

// capabilities holds the specs of what a store need not be able to do, besides those in the table.
func (s suite) capabilities() {
	ginkgo.Describe("batches", s.batches)
	ginkgo.Describe("looks", s.looks)
	ginkgo.Describe("acquiring reads", s.acquiringReads)
	ginkgo.Describe("final checkpoints", s.finals)
	ginkgo.Describe("delayed releases", s.delays)
	ginkgo.Describe("wake-ups", s.wakes)
}

// capableOperations are the calls of capabilities that are conditional on a record.
var capableOperations = []operation{batchOfOne, finalCheckpoint, delayedRelease}

// able declares a spec of a capability. It is skipped for a store that lacks it.
func able[T any](s suite, name string, r rule, body func(p *probe, c T)) {
	s.declare(1, name, r, func(p *probe) { body(p, capability[T](p)) })
}

// capability returns the T that the store is or wraps, and skips the spec if there is none.
func capability[T any](p *probe) T {
	found, ok := backend.As[T](p.store)
	if !ok {
		ginkgo.Skip(fmt.Sprint("the store is no ", reflect.TypeFor[T]()))
	}
	return found
}

// tried returns err unless it is that of a wrapper whose store lacks the capability. Then the spec is skipped.
func tried(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		ginkgo.Skip(err.Error())
	}
	return err
}
