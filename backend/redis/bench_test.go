package redis_test

import (
	"crypto/rand"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/redis"
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

// Half of these calls publish, if asked to: to nobody, and to one who hears.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, row := range []struct {
		name string
		opts []redis.Option
		hear bool
	}{
		{"silent", nil, false},
		{"publishing", []redis.Option{redis.WithWakeUps(nil)}, false},
		{"heard", []redis.Option{redis.WithWakeUps(nil)}, true},
	} {
		b.Run(row.name, func(b *testing.B) {
			store, err := redis.New(server(b), append(row.opts, redis.WithPrefix(rand.Text()))...)
			must(b, err)
			if row.hear {
				woken, stop := store.Wake("another")
				defer stop()
				<-woken // it listens
			}
			var n atomic.Int64
			parallel(b, func(pb *testing.PB) {
				workID := strconv.FormatInt(n.Add(1), 10)
				for pb.Next() {
					must(b, store.Release(b.Context(), acquire(b, store, workID, "h", time.Hour), backend.ExitFinished))
				}
			})
		})
	}
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
