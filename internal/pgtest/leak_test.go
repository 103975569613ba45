package pgtest_test

import (
	"runtime"
	"testing"

	"github.com/aetomala/worklease/internal/pgtest"
)

// It is not parallel, so that it has the goroutines of the process for itself.
func TestNoGoroutineOutlivesATest(t *testing.T) {
	before := runtime.NumGoroutine()
	// The shared server stays, and must do so without any.
	pgtest.Start(t)
	t.Run("test", func(t *testing.T) {
		proxy, _ := through(t, "pgx")
		other := pgtest.Open(t, "pq", proxy.DSN())
		if err := other.PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		proxy.Freeze()
		proxy.Refuse()
	})
	await(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}
