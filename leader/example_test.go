package leader_test

import (
	"context"
	"fmt"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/leader"
)

// One term: the function leads until it returns.
func ExampleElect() {
	lease, err := worklease.New(memory.New(), worklease.Config{TTL: 15 * time.Second, HolderID: "pod-1"})
	if err != nil {
		panic(err)
	}
	cfg := leader.Config{
		OnElected:      func(_ context.Context, token worklease.Token) { fmt.Println("elected:", token.HolderID()) },
		OnLost:         func(context.Context, worklease.Token) { fmt.Println("lost") },
		OnRelinquished: func(context.Context, worklease.Token) { fmt.Println("relinquished") },
	}
	err = leader.Elect(context.Background(), lease, "scheduler", cfg, func(ctx context.Context) error {
		fmt.Println("leading")
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// elected: pod-1
	// leading
	// relinquished
	// error: <nil>
}

// A process that stands for election as long as it runs, with a health check.
func ExampleRun() {
	lease, err := worklease.New(memory.New(), worklease.Config{TTL: 15 * time.Second, HolderID: "pod-1"})
	if err != nil {
		panic(err)
	}
	ctx, shutdown := context.WithCancel(context.Background())
	var health leader.Health
	terms := 0
	err = leader.Run(ctx, lease, "scheduler", leader.Config{
		BackoffInterval: 10 * time.Millisecond,
		OnError:         func(_ context.Context, err error) { fmt.Println("going on after:", err) },
		Health:          &health,
	}, func(ctx context.Context) error {
		if terms++; terms == 1 {
			return fmt.Errorf("queue not reachable")
		}
		fmt.Println("leading, healthy:", health.Check(30*time.Second) == nil)
		shutdown()
		<-ctx.Done()
		return ctx.Err()
	})
	fmt.Println("error:", err)
	// Output:
	// going on after: queue not reachable
	// leading, healthy: true
	// error: worklease: stand for election on "scheduler": context canceled
}
