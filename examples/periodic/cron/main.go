// Cron shows three processes with the same job of github.com/robfig/cron, of which one runs it in each tick. The
// program starts itself three times, and prints who has run the job.
//
// The database is the one that DATABASE_URL or the flag -dsn names. It gets the table worklease_leases,
// unless it has it; the row of this example is deleted at the end.
package main

import (
	"context"
	"time"

	"github.com/robfig/cron/v3"

	cronlease "github.com/aetomala/worklease/contrib/cron"
	"github.com/aetomala/worklease/examples/periodic/nodes"
	"github.com/aetomala/worklease/schedule"
)

func main() { nodes.Main(start) }

// start is what a service does with a scheduler of its own.
func start(ctx context.Context, s *schedule.Scheduler, task string, report func() error) (stop func() error, err error) {
	once := cronlease.Once(ctx, s, schedule.Task{Name: task, AtMostFor: time.Minute, AtLeastFor: nodes.AtLeast})
	job := cronlease.ContextFunc(func(context.Context) error { return report() })
	c := cron.New(cron.WithSeconds())
	if _, err := c.AddJob(nodes.EveryTwoSeconds, cron.NewChain(cron.Recover(cron.DefaultLogger), once).Then(job)); err != nil {
		return nil, err
	}
	c.Start()
	return func() error {
		<-c.Stop().Done() // the jobs that run have returned
		return nil
	}, nil
}
