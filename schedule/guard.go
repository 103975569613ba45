package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/aetomala/worklease"
)

// guard stands between a run and the code of others that watches it: no panic gets past it. It is the
// lease's observer, too, and logs.
type guard struct {
	observer Observer
	lease    worklease.LeaseObserver
	logger   *slog.Logger // nil: the default of the moment

	broken sync.Once // the logger, for the first time
}

func newGuard(cfg Config) *guard {
	g := &guard{observer: cfg.Observer, lease: cfg.LeaseObserver, logger: cfg.Logger}
	if g.observer == nil {
		g.observer = NoopObserver{}
	}
	if g.lease == nil {
		g.lease = worklease.NoopObserver{}
	}
	return g
}

// log is also safe from its handler.
func (g *guard) log(ctx context.Context, level slog.Level, msg string, args ...any) {
	defer func() {
		if p := recover(); p != nil { // there is nobody else left to tell
			g.broken.Do(func() { fmt.Fprintf(os.Stderr, "worklease: schedule: the log handler panicked: %v\n", p) })
		}
	}()
	logger := g.logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.Log(ctx, level, "worklease: "+msg, args...)
}

// instant leaves out a time that is not there.
func instant(key string, t time.Time) slog.Attr {
	if t.IsZero() {
		return slog.Attr{} // which handlers ignore
	}
	return slog.Time(key, t)
}

func (g *guard) told(ctx context.Context, tell func()) {
	defer func() {
		if p := recover(); p != nil {
			g.log(ctx, slog.LevelError, "an observer panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	tell()
}

func (g *guard) started(ctx context.Context, e StartedEvent) {
	g.log(ctx, slog.LevelDebug, "scheduled task started", "task", e.Task, instant("slot", e.Slot))
	g.told(ctx, func() { g.observer.OnStarted(ctx, e) })
}

func (g *guard) finished(ctx context.Context, e FinishedEvent) {
	g.log(ctx, slog.LevelDebug, "scheduled task finished", "task", e.Task, instant("slot", e.Slot), "duration", e.Duration, "error", e.Err)
	g.told(ctx, func() { g.observer.OnFinished(ctx, e) })
}

func (g *guard) skipped(ctx context.Context, e SkippedEvent) {
	g.log(ctx, slog.LevelDebug, "scheduled task skipped", "task", e.Task, instant("slot", e.Slot),
		"outcome", e.Outcome.String(), "holder", e.Holder, instant("until", e.Until))
	g.told(ctx, func() { g.observer.OnSkipped(ctx, e) })
}

func (g *guard) OnRenew(ctx context.Context, e worklease.RenewEvent) {
	if e.Err != nil && !errors.Is(e.Err, context.Canceled) {
		g.log(ctx, slog.LevelWarn, "a renewal of a scheduled task failed", "task", e.Token.WorkID(), "attempt", e.Attempt, "error", e.Err)
	}
	g.told(ctx, func() { g.lease.OnRenew(ctx, e) })
}

func (g *guard) OnAcquire(ctx context.Context, e worklease.AcquireEvent) {
	g.told(ctx, func() { g.lease.OnAcquire(ctx, e) })
}

func (g *guard) OnCheckpoint(ctx context.Context, e worklease.CheckpointEvent) {
	g.told(ctx, func() { g.lease.OnCheckpoint(ctx, e) })
}

func (g *guard) OnRelease(ctx context.Context, e worklease.ReleaseEvent) {
	g.told(ctx, func() { g.lease.OnRelease(ctx, e) })
}

func (g *guard) OnReadCheckpoint(ctx context.Context, e worklease.ReadCheckpointEvent) {
	g.told(ctx, func() { g.lease.OnReadCheckpoint(ctx, e) })
}

func (g *guard) OnForget(ctx context.Context, e worklease.ForgetEvent) {
	g.told(ctx, func() { g.lease.OnForget(ctx, e) })
}

func (g *guard) OnFenced(ctx context.Context, e worklease.FencedEvent) {
	g.told(ctx, func() { g.lease.OnFenced(ctx, e) })
}
