package schedule_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/schedule"
)

type recorder struct{ events []string }

func (r *recorder) add(format string, args ...any) {
	r.events = append(r.events, fmt.Sprintf(format, args...))
}
func (r *recorder) OnStarted(_ context.Context, e schedule.StartedEvent) { r.add("started %s", e.Task) }
func (r *recorder) OnFinished(_ context.Context, e schedule.FinishedEvent) {
	r.add("finished %s in %v: %v", e.Task, e.Duration, e.Err)
}
func (r *recorder) OnSkipped(_ context.Context, e schedule.SkippedEvent) {
	r.add("skipped %s: %v, by %s", e.Task, e.Outcome, e.Holder)
}

// logged is a log whose lines are a level and a message.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// has reports whether there is a line at the level with all the words.
func (l *logged) has(level string, words ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		missing := func(word string) bool { return !strings.Contains(line, word) }
		if strings.Contains(line, "level="+level) && !slices.ContainsFunc(words, missing) {
			return true
		}
	}
	return false
}

func TestObserverAndLogAreToldOfRunsAndSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var story recorder
		var log logged
		store := newFaulty()
		s := nodeWith(t, store, schedule.Config{HolderID: "a", Observer: &story, Logger: log.logger()})
		task := schedule.Task{Name: name, AtMostFor: 10 * time.Second, AtLeastFor: 10 * time.Second}
		for range 2 {
			_, _ = s.Run(t.Context(), task, func(context.Context) error { time.Sleep(time.Second); return nil })
		}
		wanted := []string{
			"started nightly-report", "finished nightly-report in 1s: <nil>", "skipped nightly-report: too soon, by a",
		}
		if !slices.Equal(story.events, wanted) {
			t.Errorf("events = %q", story.events)
		}
		for _, what := range []string{"started", "finished", "skipped"} {
			if !log.has("DEBUG", what, name) {
				t.Errorf("not logged: %s", what)
			}
		}
		if log.has("DEBUG", "0001-01-01") {
			t.Errorf("times that are not there are logged: %s", log.buf.String())
		}
		if log.has("ERROR") || log.has("WARN") {
			t.Errorf("trouble is logged: %s", log.buf.String())
		}

		store.acquire = errStore
		_, _ = s.Run(t.Context(), task, never(t))
		if !log.has("ERROR", name, "connection reset") {
			t.Error("trouble with the store is not logged as an error")
		}
		store.acquire, store.renew = nil, errStore
		time.Sleep(10 * time.Second)
		_, _ = s.Run(t.Context(), task, func(ctx context.Context) error { <-ctx.Done(); return nil })
		if !log.has("WARN", "renewal", name, "connection reset") {
			t.Error("a renewal that failed is not logged as a warning")
		}
	})
}

type counting struct {
	worklease.NoopObserver
	acquired, renewed []worklease.Token
}

func (c *counting) OnAcquire(_ context.Context, e worklease.AcquireEvent) {
	c.acquired = append(c.acquired, e.Token)
}
func (c *counting) OnRenew(_ context.Context, e worklease.RenewEvent) {
	c.renewed = append(c.renewed, e.Token)
}

// An extension is a renewal to those who watch.
func TestLeaseObserverIsToldOfAnExtension(t *testing.T) {
	var seen counting
	s := nodeWith(t, memory.New(), schedule.Config{HolderID: "a", LeaseObserver: &seen})
	lock, err := s.Lock(t.Context(), schedule.Task{Name: name, AtMostFor: time.Hour, NoKeepAlive: true})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(lock.Extend(t.Context(), time.Minute, 0), lock.Unlock(t.Context()))
	if err != nil || len(seen.acquired) != 1 || len(seen.renewed) != 1 || seen.renewed[0].FencingToken() != lock.Token().FencingToken() {
		t.Errorf("acquired %v, renewed %v, error %v", seen.acquired, seen.renewed, err)
	}
}

type panicking struct{}

func (panicking) OnStarted(context.Context, schedule.StartedEvent)                { panic("started") }
func (panicking) OnFinished(context.Context, schedule.FinishedEvent)              { panic("finished") }
func (panicking) OnSkipped(context.Context, schedule.SkippedEvent)                { panic("skipped") }
func (panicking) OnAcquire(context.Context, worklease.AcquireEvent)               { panic("acquire") }
func (panicking) OnCheckpoint(context.Context, worklease.CheckpointEvent)         { panic("checkpoint") }
func (panicking) OnRenew(context.Context, worklease.RenewEvent)                   { panic("renew") }
func (panicking) OnRelease(context.Context, worklease.ReleaseEvent)               { panic("release") }
func (panicking) OnReadCheckpoint(context.Context, worklease.ReadCheckpointEvent) { panic("read") }
func (panicking) OnForget(context.Context, worklease.ForgetEvent)                 { panic("forget") }
func (panicking) OnFenced(context.Context, worklease.FencedEvent)                 { panic("fenced") }
func (panicking) Enabled(context.Context, slog.Level) bool                        { panic("enabled") }
func (panicking) Handle(context.Context, slog.Record) error                       { panic("handle") }
func (p panicking) WithAttrs([]slog.Attr) slog.Handler                            { return p }
func (p panicking) WithGroup(string) slog.Handler                                 { return p }

// Whatever watches a run, the lock is kept and given back.
func TestPanicsOfObserversBreakNothing(t *testing.T) {
	for _, logger := range []*slog.Logger{slog.New(slog.DiscardHandler), slog.New(panicking{})} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New()
			s := nodeWith(t, store, schedule.Config{HolderID: "a", Observer: panicking{}, LeaseObserver: panicking{}, Logger: logger})
			for i := range 2 {
				task := schedule.Task{Name: name, AtMostFor: time.Second, Slot: at(i)}
				r, err := s.Run(t.Context(), task, func(ctx context.Context) error {
					time.Sleep(time.Minute)
					if got := probe(t, store); got != schedule.OutcomeHeld || ctx.Err() != nil {
						t.Errorf("%v, %v", got, ctx.Err())
					}
					return schedule.Extend(ctx, time.Minute, 0)
				})
				want(t, r, err, schedule.OutcomeRan)
				r, err = s.Run(t.Context(), task, never(t))
				want(t, r, err, schedule.OutcomeAlreadyRan)
			}
			if got := probe(t, store); got != schedule.OutcomeRan {
				t.Errorf("afterwards: %v", got)
			}
		})
	}
}

// What cron libraries call has nobody but the log to tell, which hears of each trouble once, and of none at
// a shutdown.
func TestFuncLogsEachTroubleOnce(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	valid := schedule.Task{Name: name, AtMostFor: time.Second}
	for _, c := range []struct {
		title string
		ctx   context.Context
		task  schedule.Task
		down  error
		fn    func(context.Context) error
		lines int
	}{
		{"the function fails", t.Context(), valid, nil, returns(errWork), 1},
		{"the store is down", t.Context(), valid, errStore, never(t), 1},
		{"the task is not valid", t.Context(), schedule.Task{Name: name}, nil, never(t), 1},
		{"no function", t.Context(), valid, nil, nil, 1},
		{"no context", nil, valid, nil, never(t), 1},
		{"the context has ended", ended, valid, nil, never(t), 0},
	} {
		var log logged
		store := newFaulty()
		store.set(func(f *faultyStore) { f.acquire = c.down })
		nodeWith(t, store, schedule.Config{HolderID: "a", Logger: log.logger()}).Func(c.ctx, c.task, c.fn)()
		if got := strings.Count(log.buf.String(), "level=ERROR"); got != c.lines {
			t.Errorf("%s: %d lines, not %d:\n%s", c.title, got, c.lines, log.buf.String())
		}
	}
}
