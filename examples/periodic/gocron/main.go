// Gocron shows three processes with the same job of gocron v2, of which one runs it in each tick. The program
// starts itself three times, and prints who has run the job.
//
// The database is the one that DATABASE_URL or the flag -dsn names. It gets the table worklease_leases,
// unless it has it; the row of this example is deleted at the end.
package main

import (
	"context"
	"time"

	gocronv2 "github.com/go-co-op/gocron/v2"

	"github.com/aetomala/worklease/contrib/gocron"
	"github.com/aetomala/worklease/examples/periodic/nodes"
	"github.com/aetomala/worklease/schedule"
)

func main() { nodes.Main(start) }

// start is what a service does with a scheduler of its own.
func start(_ context.Context, s *schedule.Scheduler, task string, report func() error) (stop func() error, err error) {
	locker := gocron.NewLocker(s, schedule.Task{AtMostFor: time.Minute, AtLeastFor: nodes.AtLeast}, nil)
	g, err := gocronv2.NewScheduler(gocronv2.WithDistributedLocker(locker))
	if err != nil {
		return nil, err
	}
	// The job's name is that of the lease.
	if _, err := g.NewJob(gocronv2.CronJob(nodes.EveryTwoSeconds, true), gocronv2.NewTask(report), gocronv2.WithName(task)); err != nil {
		return nil, err
	}
	g.Start()
	return g.Shutdown, nil
}
