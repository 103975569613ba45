package bench

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/schedule"
)

func tableSchedule(t *testing.T, quick, durable *pgtest.Server) {
	clients := pick(8, 2)
	tab := table{
		title: "schedule.Run of an empty function against bare locks",
		about: fmt.Sprintf("pglock 1.16.1 (pgx) and bsm/redislock 0.9.4, acquiring and releasing, = 1; %d clients, each with tasks of its own; all in one run. "+
			"A run renews its lease, ends its function when it is lost, and records how it ended; with a Slot it also makes it one run per instant.", clients),
		head: []string{"run", "store", "against pglock, fsync on", "fsync off", "against redislock"},
	}
	server := newRedis(t)
	var rows [][]string
	for i, s := range []*pgtest.Server{durable, quick} {
		c := newClock(t, s).with(server)
		postgres, redis := newFixture(t, s, "pgx", clients).store, server.store(t, clients)
		medians := compare(length(roundLength),
			throughput(t, c, clients, runTask(t, postgres, false)),
			throughput(t, c, clients, runTask(t, postgres, true)),
			throughput(t, c, clients, runTask(t, redis, false)),
			throughput(t, c, clients, runTask(t, redis, true)),
			throughput(t, c, clients, pglockAcquireRelease(t, s, "pgx", clients)),
			throughput(t, c, clients, server.obtainRelease(t, clients)),
		)
		pglock, redislock := medians[4], medians[5]
		if i == 0 {
			rows = [][]string{{"plain", "PostgreSQL"}, {"with a Slot", "PostgreSQL"}, {"plain", "Redis"}, {"with a Slot", "Redis"}}
		}
		for i := range rows {
			rows[i] = append(rows[i], against(medians[i], pglock))
			if s == quick {
				rows[i] = append(rows[i], against(medians[i], redislock))
			}
		}
	}
	for _, row := range rows {
		tab.add(row...)
	}
	tab.print(t)
}

// runTask runs tasks that nobody else wants, with a slot that is due if there are to be slots.
func runTask(t *testing.T, store backend.Backend, slots bool) op {
	t.Helper()
	s, err := schedule.New(store, schedule.Config{HolderID: "holder"})
	if err != nil {
		t.Fatal(err)
	}
	first := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	return func(ctx context.Context, client, i int) error {
		task := schedule.Task{Name: strconv.FormatBool(slots) + strconv.Itoa(nth(client, i)), AtMostFor: ttl}
		if slots {
			task.Slot = first.Add(time.Duration(i) * time.Second)
		}
		result, err := s.Run(ctx, task, func(context.Context) error { return nil })
		if err == nil && result.Outcome != schedule.OutcomeRan {
			err = fmt.Errorf("the task was not run: %v", result.Outcome)
		}
		return err
	}
}
