package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/leader"
	"github.com/aetomala/worklease/pool"
	"github.com/aetomala/worklease/worker"
)

// way is one of those to work under a lease.
type way struct {
	name string
	n    int // how many work IDs it takes
	run  func(ctx context.Context, t *testing.T, lease worklease.Lease, workIDs []string, cleanup time.Duration, work func(context.Context) error) error
	ends bool // it returns nil when it was told to end
}

var ways = []way{
	{name: "worker", n: 1, run: func(ctx context.Context, t *testing.T, lease worklease.Lease, workIDs []string, cleanup time.Duration, work func(context.Context) error) error {
		runner, err := worker.NewRunner(worker.RunnerConfig{
			Lease: lease, CleanupTimeout: cleanup,
			WorkFn: func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
				return nil, work(ctx)
			},
		})
		if err != nil {
			t.Error(err)
			return err
		}
		return runner.Run(ctx, workIDs[0])
	}},
	{name: "Elect", n: 1, run: func(ctx context.Context, _ *testing.T, lease worklease.Lease, workIDs []string, cleanup time.Duration, work func(context.Context) error) error {
		return leader.Elect(ctx, lease, workIDs[0], leader.Config{CleanupTimeout: cleanup, BackoffInterval: never}, work)
	}},
	{name: "leader.Run", n: 1, run: func(ctx context.Context, _ *testing.T, lease worklease.Lease, workIDs []string, cleanup time.Duration, work func(context.Context) error) error {
		return leader.Run(ctx, lease, workIDs[0], leader.Config{CleanupTimeout: cleanup, BackoffInterval: never}, work)
	}},
	{name: "pool", n: 20, ends: true, run: func(ctx context.Context, t *testing.T, lease worklease.Lease, workIDs []string, cleanup time.Duration, work func(context.Context) error) error {
		p, err := pool.New(lease, pool.Config{
			WorkIDs: workIDs, CleanupTimeout: cleanup, IdleInterval: never, RerunInterval: never, BackoffInterval: never,
		}, func(ctx context.Context, _ string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			return nil, work(ctx)
		})
		if err != nil {
			t.Error(err)
			return err
		}
		return p.Run(ctx)
	}},
}

func (w way) workIDs(prefix string) []string {
	workIDs := make([]string, w.n)
	for i := range workIDs {
		workIDs[i] = fmt.Sprintf("%s %s %02d", w.name, prefix, i)
	}
	return workIDs
}
