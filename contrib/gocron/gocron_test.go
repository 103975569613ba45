package gocron_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocronv2 "github.com/go-co-op/gocron/v2"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/contrib/gocron"
	"github.com/aetomala/worklease/leader"
	"github.com/aetomala/worklease/schedule"
)

func nodeOf(t *testing.T, store *memory.Backend, holderID string) *schedule.Scheduler {
	t.Helper()
	s, err := schedule.New(store, schedule.Config{HolderID: holderID, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func start(t *testing.T, job func(), option gocronv2.SchedulerOption) {
	t.Helper()
	s, err := gocronv2.NewScheduler(option)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.NewJob(gocronv2.DurationJob(time.Second), gocronv2.NewTask(job), gocronv2.WithName("job")); err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
}

// Three nodes, 100 ms apart, with a job of 5 ms.
func TestLockerLetsOneNodeRunATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var runs atomic.Int64
		for i := range 3 {
			task := schedule.Task{Name: "cron/", AtMostFor: time.Minute, AtLeastFor: 500 * time.Millisecond}
			locker := gocron.NewLocker(nodeOf(t, store, fmt.Sprint("node-", i)), task, nil)
			start(t, func() {
				runs.Add(1)
				time.Sleep(5 * time.Millisecond)
			}, gocronv2.WithDistributedLocker(locker))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(60*time.Second + 200*time.Millisecond)
		if got := runs.Load(); got != 60 {
			t.Errorf("%d runs, want 60", got)
		}
	})
}

func TestLockTellsASkipAndUnlocksInAShutdown(t *testing.T) {
	store := memory.New()
	task := schedule.Task{AtMostFor: time.Hour}
	a, b := gocron.NewLocker(nodeOf(t, store, "a"), task, nil), gocron.NewLocker(nodeOf(t, store, "b"), task, nil)
	ctx, cancel := context.WithCancel(t.Context())
	held, err := a.Lock(ctx, "job")
	if err != nil {
		t.Fatal(err)
	}
	if lock, err := b.Lock(ctx, "job"); lock != nil || !errors.Is(err, worklease.ErrLeaseHeld) {
		t.Errorf("second lock = %v, %v", lock, err)
	}
	cancel()
	if err := held.Unlock(ctx); err != nil {
		t.Errorf("unlock: %v", err)
	}
	next, err := b.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestElectorLetsTheLeaderRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var runs [2]atomic.Int64
		var electors [2]gocron.Elector
		var stops [2]context.CancelFunc
		if err := electors[0].IsLeader(t.Context()); !errors.Is(err, gocron.ErrNotLeader) {
			t.Errorf("before the election: %v", err)
		}
		for i := range electors {
			lease, err := worklease.New(store, worklease.Config{TTL: 10 * time.Second, HolderID: fmt.Sprint("node-", i)})
			if err != nil {
				t.Fatal(err)
			}
			var ctx context.Context
			ctx, stops[i] = context.WithCancel(t.Context())
			defer stops[i]()
			go func() {
				if err := leader.Run(ctx, lease, "cron", leader.Config{}, electors[i].Lead); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}()
			synctest.Wait()
			start(t, func() { runs[i].Add(1) }, gocronv2.WithDistributedElector(&electors[i]))
		}
		time.Sleep(10*time.Second + 500*time.Millisecond)
		if first, second := runs[0].Load(), runs[1].Load(); first != 10 || second != 0 {
			t.Errorf("%d and %d runs", first, second)
		}
		stops[0]()
		time.Sleep(10 * time.Second)
		if first, second := runs[0].Load(), runs[1].Load(); first != 10 || second < 8 || second > 10 {
			t.Errorf("after a change of leaders: %d and %d runs", first, second)
		}
		stops[1]()
		synctest.Wait()
		if electors[1].IsLeader(t.Context()) == nil {
			t.Error("leads after its end")
		}
	})
}
