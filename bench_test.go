package worklease_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
)

// benchTTL is so long that nothing lapses and nothing is renewed while a benchmark runs.
const benchTTL = time.Hour

func benchLease(tb testing.TB, observer worklease.LeaseObserver) worklease.Lease {
	tb.Helper()
	lease, err := worklease.New(memory.New(), worklease.Config{TTL: benchTTL, HolderID: "bench", Observer: observer})
	if err != nil {
		tb.Fatal(err)
	}
	return lease
}

// benchIDs returns n distinct work IDs.
func benchIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = "work-" + strconv.Itoa(i)
	}
	return ids
}

func benchTokens(tb testing.TB, lease worklease.Lease, n int) []worklease.Token {
	tb.Helper()
	tokens := make([]worklease.Token, n)
	for i, id := range benchIDs(n) {
		token, err := lease.Acquire(tb.Context(), id)
		if err != nil {
			tb.Fatal(err)
		}
		tokens[i] = token
	}
	return tokens
}

// benchAll runs an operation without an observer and with one that does nothing, each in one goroutine
// and in 64. prepare is called before the clock runs. It is told how many goroutines there will be and
// how many operations in all, and returns the operation: goroutine is below goroutines, and i counts
// the operations of all of them.
func benchAll(b *testing.B, prepare func(b *testing.B, lease worklease.Lease, goroutines, total int) func(goroutine, i int) error) {
	for _, observer := range []struct {
		name string
		is   worklease.LeaseObserver
	}{{"nil", nil}, {"noop", worklease.NoopObserver{}}} {
		for _, parallelism := range []int{1, 64} {
			b.Run(fmt.Sprintf("observer=%s/goroutines=%d", observer.name, parallelism), func(b *testing.B) {
				lease := benchLease(b, observer.is)
				b.ReportAllocs()
				if parallelism == 1 {
					do := prepare(b, lease, 1, b.N)
					b.ResetTimer()
					for i := range b.N {
						if err := do(0, i); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				// RunParallel starts a multiple of GOMAXPROCS goroutines: 64, or the next above it.
				multiple := (parallelism + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0)
				do := prepare(b, lease, multiple*runtime.GOMAXPROCS(0), b.N)
				var goroutines, operations atomic.Int64
				b.SetParallelism(multiple)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					goroutine := int(goroutines.Add(1) - 1)
					for pb.Next() {
						if err := do(goroutine, int(operations.Add(1)-1)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

// benchHeld is benchAll for what a holder does again and again with its token.
func benchHeld(b *testing.B, do func(context.Context, worklease.Lease, worklease.Token) error) {
	benchAll(b, func(b *testing.B, lease worklease.Lease, goroutines, _ int) func(int, int) error {
		tokens := benchTokens(b, lease, goroutines)
		for _, token := range tokens {
			if err := lease.Checkpoint(b.Context(), token, make([]byte, 100)); err != nil {
				b.Fatal(err)
			}
		}
		return func(goroutine, _ int) error { return do(b.Context(), lease, tokens[goroutine]) }
	})
}

// Each Acquire is of a work ID that the store does not know yet.
func BenchmarkAcquire(b *testing.B) {
	benchAll(b, func(b *testing.B, lease worklease.Lease, _, total int) func(int, int) error {
		ids := benchIDs(total)
		return func(_, i int) error {
			_, err := lease.Acquire(b.Context(), ids[i])
			return err
		}
	})
}

func BenchmarkAcquireRelease(b *testing.B) {
	benchAll(b, func(b *testing.B, lease worklease.Lease, goroutines, _ int) func(int, int) error {
		ids := benchIDs(goroutines)
		return func(goroutine, _ int) error {
			token, err := lease.Acquire(b.Context(), ids[goroutine])
			if err != nil {
				return err
			}
			return lease.Release(b.Context(), token, worklease.ExitFinished)
		}
	})
}

func BenchmarkRenew(b *testing.B) {
	benchHeld(b, func(ctx context.Context, lease worklease.Lease, token worklease.Token) error {
		return lease.Renew(ctx, token)
	})
}

func BenchmarkCheckpoint(b *testing.B) {
	state := make([]byte, 100)
	benchHeld(b, func(ctx context.Context, lease worklease.Lease, token worklease.Token) error {
		return lease.Checkpoint(ctx, token, state)
	})
}

func BenchmarkReadCheckpoint(b *testing.B) {
	benchHeld(b, func(ctx context.Context, lease worklease.Lease, token worklease.Token) error {
		_, err := lease.ReadCheckpoint(ctx, token)
		return err
	})
}

// Each Release is of a lease that was acquired before the clock ran.
func BenchmarkRelease(b *testing.B) {
	benchAll(b, func(b *testing.B, lease worklease.Lease, _, total int) func(int, int) error {
		tokens := benchTokens(b, lease, total)
		return func(_, i int) error {
			return lease.Release(b.Context(), tokens[i], worklease.ExitFinished)
		}
	})
}

// What StartRenewal costs while nothing is due: an operation is 10,000 leases of one process, kept
// alive under one context.
func BenchmarkStartRenewal(b *testing.B) {
	const leases = 10_000
	lease := benchLease(b, nil)
	stops := make([]func(), leases)
	var goroutines, bytes int64
	for b.Loop() {
		b.StopTimer()
		tokens := benchTokens(b, lease, leases)
		ctx, cancel := context.WithCancel(b.Context())
		goroutinesBefore, bytesBefore := runtime.NumGoroutine(), benchHeap()
		b.StartTimer()

		for i, token := range tokens {
			_, stops[i] = lease.StartRenewal(ctx, token)
		}

		b.StopTimer()
		bytes += benchHeap() - bytesBefore
		goroutines += int64(runtime.NumGoroutine() - goroutinesBefore)
		cancel()
		for _, token := range tokens {
			if err := lease.Release(b.Context(), token, worklease.ExitFinished); err != nil {
				b.Fatal(err)
			}
		}
		clear(stops)
		b.StartTimer()
	}
	b.ReportMetric(0, "ns/op") // ns/lease says it in a unit that can be compared
	b.ReportMetric(float64(goroutines)/float64(b.N), "goroutines/10k")
	b.ReportMetric(float64(bytes)/float64(b.N)/leases, "B/lease")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/leases, "ns/lease")
}

func benchHeap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// A lease must cost nothing that the store does not ask for: with no observer, the calls allocate
// what the memory store copies.
func TestAllocations(t *testing.T) {
	lease := benchLease(t, nil)
	ctx := t.Context()
	state := make([]byte, 100)
	token := benchTokens(t, lease, 1)[0]
	for _, row := range []struct {
		call string // in this order: a later one finds what an earlier one saved
		want float64
		do   func() error
	}{
		{"Renew", 0, func() error { return lease.Renew(ctx, token) }},
		{"Checkpoint", 1, func() error { return lease.Checkpoint(ctx, token, state) }},
		{"ReadCheckpoint", 1, func() error { _, err := lease.ReadCheckpoint(ctx, token); return err }},
		{"Checkpoint without state", 0, func() error { return lease.Checkpoint(ctx, token, nil) }},
		{"ReadCheckpoint without state", 0, func() error { _, err := lease.ReadCheckpoint(ctx, token); return err }},
	} {
		var failed error
		got := testing.AllocsPerRun(1000, func() {
			if err := row.do(); err != nil {
				failed = err
			}
		})
		if failed != nil {
			t.Errorf("%s: %v", row.call, failed)
		}
		if got != row.want {
			t.Errorf("%s allocates %v times, want %v", row.call, got, row.want)
		}
	}
}
