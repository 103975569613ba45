package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/worker"
)

// A run that is shorter than its renewal interval begins with one statement and ends with one.
func TestWorkerRunIsTwoRoundTrips(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		f, proxy := newProxied(t, driver)
		f.db.SetMaxOpenConns(1)
		warm(t, f.store)
		lease, err := worklease.New(f.store, worklease.Config{TTL: time.Minute, HolderID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		for name, state := range map[string][]byte{"without state": nil, "with state": []byte("done"), "clearing the state": {}} {
			run, err := worker.NewRunner(worker.RunnerConfig{
				Lease: lease,
				WorkFn: func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) {
					return state, nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			proxy.ResetTraffic()
			err = run.Run(t.Context(), "report")
			traffic := proxy.Traffic()
			trips := traffic.RoundTrips - traffic.Count('Q') // pgx pings a connection that lay idle for a second
			if err != nil || trips != 2 || traffic.Count('P') != 0 {
				t.Errorf("%s: %v, %d round trips, messages %s", name, err, traffic.RoundTrips, traffic.Messages)
			}
		}
	})
}
