package conformance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

func (s suite) contexts() {
	kinds := []struct {
		name string
		done func(context.Context) (context.Context, context.CancelFunc)
	}{
		{"cancelled", func(parent context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(parent)
			cancel()
			return ctx, cancel
		}},
		{"past its deadline", func(parent context.Context) (context.Context, context.CancelFunc) {
			return context.WithDeadline(parent, time.Now().Add(-time.Second))
		}},
		{"cancelled with a cause", func(parent context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(parent)
			cancel(errors.New("a cause of the caller's"))
			return ctx, func() { cancel(nil) }
		}},
	}

	acquire := func(p *probe, _ situation) error {
		_, err := p.store.Acquire(p.ctx, work, "another", hour)
		return err
	}
	sweep := func(p *probe, _ situation) error {
		deleted, err := p.store.Sweep(p.ctx, everyRow)
		p.Expect(deleted).To(gomega.BeZero(), "rows that Sweep says it deleted")
		return err
	}
	type operationOnRow struct {
		name  string
		setUp func(*probe) situation
		call  func(*probe, situation) error
	}
	// Each call is one that succeeds with a context that is not done.
	operations := []operationOnRow{
		{"Acquire of no row", absent, acquire},
		{"Acquire of a lapsed lease", lapsed, acquire},
		{"Checkpoint of a lapsed lease", lapsed, recordOperations[0].call},
		{"Sweep", released(backend.ExitRetired), sweep},
	}
	for _, op := range slices.Concat(recordOperations, capableOperations) {
		operations = append(operations, operationOnRow{op.name, live, op.call})
	}
	operations = append(operations,
		operationOnRow{"AcquireRead of a lapsed lease", lapsed, func(p *probe, _ situation) error {
			_, _, err := capability[backend.AcquireReader](p).AcquireRead(p.ctx, work, "another", hour)
			return tried(err)
		}},
		operationOnRow{"CheckpointRelease of a lapsed lease", lapsed, finalCheckpoint.call},
		operationOnRow{"Free", live, func(p *probe, _ situation) error {
			_, err := capability[backend.Looker](p).Free(p.ctx, []string{work})
			return tried(err)
		}})

	for _, kind := range kinds {
		for _, op := range operations {
			s.it("that are "+kind.name+" stop "+op.name, contextDone, func(p *probe) {
				row := op.setUp(p)
				ctx, cancel := kind.done(p.ctx)
				defer cancel()
				err := op.call(&probe{Gomega: p.Gomega, ctx: ctx, store: p.store}, row)

				p.Expect(err).To(gomega.MatchError(ctx.Err()))
				for _, sentinel := range sentinels {
					p.Expect(err).NotTo(gomega.MatchError(sentinel))
				}
				p.unchanged(row)
			})
		}
	}
}
