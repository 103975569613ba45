package cron_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/aetomala/worklease/backend/memory"
	cronlease "github.com/aetomala/worklease/contrib/cron"
	"github.com/aetomala/worklease/schedule"
)

// Three nodes with the same schedule run a job of a second's interval once a second.
func TestJobIsRunOnceOnThreeNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var plain, aware atomic.Int64
		for i, id := range []string{"a", "b", "c"} {
			s, err := schedule.New(store, schedule.Config{HolderID: id, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			c := cron.New()
			task := func(name string) schedule.Task {
				return schedule.Task{Name: name, AtMostFor: time.Minute, AtLeastFor: 500 * time.Millisecond}
			}
			c.Schedule(cron.Every(time.Second), cron.NewChain(cronlease.Once(t.Context(), s, task("plain"))).
				Then(cron.FuncJob(func() { plain.Add(1) })))
			c.Schedule(cron.Every(time.Second), cron.NewChain(cronlease.Once(t.Context(), s, task("aware"))).
				Then(cronlease.ContextFunc(func(ctx context.Context) error {
					schedule.MustHold(ctx)
					aware.Add(1)
					return nil
				})))
			c.Start()
			defer func() { <-c.Stop().Done() }()
		}
		time.Sleep(60*time.Second + 500*time.Millisecond)
		// cron rounds to full seconds, so that each node ticks at the same instants.
		if plain.Load() < 60 || plain.Load() > 61 || aware.Load() != plain.Load() {
			t.Errorf("%d and %d runs", plain.Load(), aware.Load())
		}
	})
}
