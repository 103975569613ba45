package worker_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/worker"
)

// A whole run with 100 bytes of final state: acquire, read, start and stop the renewal, checkpoint,
// release.
func BenchmarkRun(b *testing.B) {
	state := make([]byte, 100)
	work := func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) { return state, nil }
	for _, observer := range []struct {
		name string
		is   worklease.LeaseObserver
	}{{"nil", nil}, {"noop", worklease.NoopObserver{}}} {
		for _, goroutines := range []int{1, 64} {
			b.Run(fmt.Sprintf("observer=%s/goroutines=%d", observer.name, goroutines), func(b *testing.B) {
				lease, err := worklease.New(memory.New(), worklease.Config{TTL: time.Hour, HolderID: "bench", Observer: observer.is})
				if err != nil {
					b.Fatal(err)
				}
				runner, err := worker.NewRunner(worker.RunnerConfig{Lease: lease, WorkFn: work})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				if goroutines == 1 {
					for b.Loop() {
						if err := runner.Run(b.Context(), "work"); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				// RunParallel starts a multiple of GOMAXPROCS goroutines: 64, or the next above it.
				b.SetParallelism((goroutines + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
				var started atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					workID := fmt.Sprintf("work-%d", started.Add(1))
					for pb.Next() {
						if err := runner.Run(b.Context(), workID); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
