// Observability shows a LeaseObserver and a VacuumObserver that write to log/slog and count in expvar.
// What they are told of is sorted by errors.Is into what is usual where several compete, what the caller
// wanted, what the holder lost, and what somebody has to look at.
package main

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
)

// class says what kind of outcome err is, and how loudly to speak of it.
func class(err error) (string, slog.Level) {
	switch {
	case err == nil:
		return "ok", slog.LevelDebug
	case errors.Is(err, worklease.ErrLeaseHeld):
		return "contention", slog.LevelDebug // somebody else is at it, as it should be
	case errors.Is(err, worklease.ErrFenced), errors.Is(err, worklease.ErrLeaseExpired),
		errors.Is(err, worklease.ErrLeaseWindowExhausted):
		return "lost", slog.LevelWarn
	case errors.Is(err, context.Canceled):
		return "cancelled", slog.LevelInfo
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout", slog.LevelWarn // of a call with a deadline: a slow store, or no free connection
	default:
		return "fault", slog.LevelError // the store's: the database is away, read-only, lacks a table
	}
}

// observer is told of every call to the store, in the goroutine of the call: it must not block. A fault
// on the way to a log server must not cost a lease.
type observer struct {
	worklease.NoopObserver // for methods that a later version adds
	log                    *slog.Logger
	counts                 *expvar.Map
}

func (o observer) note(ctx context.Context, operation, workID string, took time.Duration, err error, more ...slog.Attr) {
	class, level := class(err)
	o.counts.Add(operation+" "+class, 1)
	attrs := []slog.Attr{slog.String("class", class), slog.Duration("took", took)}
	if workID != "" {
		attrs = append(attrs, slog.String("work", workID))
	}
	if class == "timeout" || class == "fault" {
		attrs = append(attrs, slog.Any("err", err)) // elsewhere the class says all there is to know
	}
	o.log.LogAttrs(ctx, level, operation, append(attrs, more...)...)
}

func (o observer) OnAcquire(ctx context.Context, e worklease.AcquireEvent) {
	var more []slog.Attr
	if held, ok := errors.AsType[*worklease.HeldError](e.Err); ok {
		more = append(more, slog.String("held_by", held.HolderID))
	}
	if e.Err == nil {
		more = append(more, slog.Uint64("token", e.Token.FencingToken()))
	}
	o.note(ctx, "acquire", e.WorkID, e.Duration, e.Err, more...)
}

func (o observer) OnReadCheckpoint(ctx context.Context, e worklease.ReadCheckpointEvent) {
	o.note(ctx, "read", e.Token.WorkID(), e.Duration, e.Err, slog.String("previous_exit", e.PrevExit.String()), slog.Int("bytes", e.Size))
}

func (o observer) OnCheckpoint(ctx context.Context, e worklease.CheckpointEvent) {
	o.note(ctx, "checkpoint", e.Token.WorkID(), e.Duration, e.Err, slog.Int("bytes", e.Size))
}

func (o observer) OnRenew(ctx context.Context, e worklease.RenewEvent) {
	o.note(ctx, "renew", e.Token.WorkID(), e.Duration, e.Err, slog.Int("attempt", e.Attempt))
}

func (o observer) OnRelease(ctx context.Context, e worklease.ReleaseEvent) {
	o.note(ctx, "release", e.Token.WorkID(), e.Duration, e.Err, slog.String("exit", e.Mode.String()))
}

func (o observer) OnForget(ctx context.Context, e worklease.ForgetEvent) {
	o.note(ctx, "forget", e.Token.WorkID(), e.Duration, e.Err)
}

// OnFenced comes after the event of the operation: a holder was superseded without noticing.
func (o observer) OnFenced(ctx context.Context, e worklease.FencedEvent) {
	o.counts.Add("fenced", 1)
	o.log.LogAttrs(ctx, slog.LevelWarn, "fenced", slog.String("work", e.Token.WorkID()), slog.String("in", e.Operation.String()))
}

func (o observer) OnSweep(ctx context.Context, e worklease.SweepEvent) {
	o.counts.Add("rows swept", e.Deleted)
	o.note(ctx, "sweep", "", e.Duration, e.Err, slog.Int64("deleted", e.Deleted))
}

func main() {
	// expvar also serves its variables at /debug/vars, where a program listens for HTTP.
	counts := expvar.NewMap("worklease")
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		// Times would make each run of this example print something else.
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "took" {
				return slog.Attr{}
			}
			return a
		},
	}))
	if err := run(context.Background(), logger, counts); err != nil {
		log.Fatal(err)
	}
	fmt.Println(expvar.Get("worklease"))
}

// run calls for each class of outcome once. What the calls return is what the observers are told.
func run(ctx context.Context, logger *slog.Logger, counts *expvar.Map) error {
	clock := &clock{now: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)}
	store := &store{Backend: memory.New(memory.WithClock(clock))}
	host := func(name string) (worklease.Lease, error) {
		return worklease.New(store, worklease.Config{
			TTL: 30 * time.Second, HolderID: name,
			Observer: observer{log: logger.With("host", name), counts: counts},
		})
	}
	first, err := host("host-1")
	if err != nil {
		return err
	}
	second, err := host("host-2")
	if err != nil {
		return err
	}
	vacuum, err := worklease.NewVacuum(store, worklease.VacuumConfig{Observer: observer{log: logger, counts: counts}})
	if err != nil {
		return err
	}

	token, err := first.Acquire(ctx, "report-2026")
	if err != nil {
		return err
	}
	if _, err := second.Acquire(ctx, "report-2026"); !errors.Is(err, worklease.ErrLeaseHeld) {
		return fmt.Errorf("acquired twice: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := second.Acquire(cancelled, "report-2026"); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("acquired without a context: %v", err)
	}
	if err := first.Checkpoint(ctx, token, []byte("page 1")); err != nil {
		return err
	}
	store.renew = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() } // all connections are in use
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := first.Renew(short, token); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("renewed without a connection: %v", err)
	}
	refused := errors.New("connection refused")
	store.renew = func(context.Context) error { return refused }
	if err := first.Renew(ctx, token); !errors.Is(err, refused) {
		return fmt.Errorf("renewed without a store: %v", err)
	}

	clock.now = clock.now.Add(30 * time.Second)
	next, err := second.Acquire(ctx, "report-2026")
	if err != nil {
		return err
	}
	if _, err := second.ReadCheckpoint(ctx, next); err != nil {
		return err
	}
	if err := first.Checkpoint(ctx, token, []byte("page 2")); !errors.Is(err, worklease.ErrFenced) {
		return fmt.Errorf("saved by a superseded holder: %v", err)
	}
	if err := second.Release(ctx, next, worklease.ExitRetired); err != nil {
		return err
	}
	clock.now = clock.now.Add(2 * time.Hour)
	_, err = vacuum.Sweep(ctx, worklease.SweepOptions{Retention: time.Hour})
	return err
}

// store has a Renew that can be made to fail.
type store struct {
	backend.Backend
	renew func(context.Context) error // nil: renews
}

func (s *store) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	if s.renew != nil {
		return s.renew(ctx)
	}
	return s.Backend.Renew(ctx, record, ttl)
}

// clock is a time that only the program moves.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }
