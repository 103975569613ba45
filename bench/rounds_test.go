package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// sample is what a round says: operations per second, and the seconds of processor time that an
// operation takes in client and server together.
type sample struct{ rate, cpu float64 }

// variant takes a turn of so long, and gets ready with one of no length.
type variant func(time.Duration) sample

// compare lets variants take turns of length d and returns the medians of each.
func compare(d time.Duration, variants ...variant) []sample {
	measured := make([][]sample, len(variants))
	for _, measure := range variants {
		measure(0)
	}
	for round := range pick(5, 1) {
		for i := range variants {
			if round%2 == 1 { // so that none always follows the same other one
				i = len(variants) - 1 - i
			}
			measured[i] = append(measured[i], variants[i](d))
		}
	}
	medians := make([]sample, len(variants))
	for i, samples := range measured {
		var rates, cpus []float64
		for _, s := range samples {
			rates, cpus = append(rates, s.rate), append(cpus, s.cpu)
		}
		medians[i] = sample{quantile(rates, 0.5), quantile(cpus, 0.5)}
	}
	return medians
}

// throughput is a variant: so many clients do the operation. It does each 10 times to get ready.
func throughput(t *testing.T, c *clock, clients int, do op) variant {
	done := make([]int, clients) // by each client, in all rounds
	return func(d time.Duration) sample {
		t.Helper()
		// As in a program, where a lease's context can end. It costs goroutines, here and in the drivers.
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		atLeast := 1
		if d == 0 {
			atLeast = 10
		}
		var (
			wg    sync.WaitGroup
			total atomic.Int64
			cpu   = c.server() + c.self()
			start = time.Now()
		)
		for client := range clients {
			wg.Go(func() {
				for n := 1; ; n++ {
					if err := do(ctx, client, done[client]); err != nil {
						t.Error(err)
						return
					}
					done[client]++
					if n >= atLeast && time.Since(start) >= d {
						total.Add(int64(n))
						return
					}
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
		n, took := float64(total.Load()), time.Since(start)
		return sample{rate: n / took.Seconds(), cpu: (c.self() + c.server() - cpu).Seconds() / n}
	}
}

func quantile[T ~int64 | ~float64](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// against is how ours fares, 1 being theirs: in throughput, and in operations per second of processor
// time. The latter is what the throughput would be if nothing else kept the processors busy, as long as
// they are what is scarce.
func against(ours, theirs sample) string {
	text := fmt.Sprintf("%.2f", ours.rate/theirs.rate)
	if cpu := theirs.cpu / ours.cpu; cpu > 0 && !math.IsInf(cpu, 0) {
		text += fmt.Sprintf(" (%.2f)", cpu)
	}
	return text
}
