package cron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/aetomala/worklease/backend/memory"
	cronlease "github.com/aetomala/worklease/contrib/cron"
	"github.com/aetomala/worklease/schedule"
)

// A job as every node has it.
func ExampleOnce() {
	s, err := schedule.New(memory.New(), schedule.Config{HolderID: "pod-1"})
	if err != nil {
		panic(err)
	}
	task := schedule.Task{Name: "nightly-report", AtMostFor: time.Hour, AtLeastFor: time.Minute}
	report := cronlease.ContextFunc(func(context.Context) error {
		fmt.Println("reporting")
		return nil
	})
	job := cron.NewChain(cron.Recover(cron.DefaultLogger), cronlease.Once(context.Background(), s, task)).Then(report)

	c := cron.New()
	if _, err := c.AddJob("0 3 * * *", job); err != nil {
		panic(err)
	}
	job.Run() // as c does at three o'clock, here and
	job.Run() // on another node
	// Output:
	// reporting
}
