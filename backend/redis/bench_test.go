package redis_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
)

// About 50 clients, as redis-benchmark has by default.
const clients = 50

func BenchmarkRenew(b *testing.B) {
	store, _ := open(b, server(b))
	var n atomic.Int64
	parallel(b, func(pb *testing.PB) {
		mine := acquire(b, store, strconv.FormatInt(n.Add(1), 10), "h", time.Hour)
		for pb.Next() {
			must(b, store.Renew(b.Context(), mine, time.Hour))
		}
	})
}

func BenchmarkAcquireRelease(b *testing.B) {
	store, _ := open(b, server(b))
	var n atomic.Int64
	parallel(b, func(pb *testing.PB) {
		workID := strconv.FormatInt(n.Add(1), 10)
		for pb.Next() {
			must(b, store.Release(b.Context(), acquire(b, store, workID, "h", time.Hour), backend.ExitFinished))
		}
	})
}

func BenchmarkRenewBatch500(b *testing.B) {
	store, _ := open(b, server(b))
	var records []backend.LeaseRecord
	for i := range 500 {
		records = append(records, acquire(b, store, strconv.Itoa(i), "h", time.Hour))
	}
	for b.Loop() {
		_, err := store.RenewBatch(b.Context(), records, time.Hour)
		must(b, err)
	}
}

func parallel(b *testing.B, body func(pb *testing.PB)) {
	b.SetParallelism(clients / 2)
	b.ResetTimer()
	b.RunParallel(body)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}
