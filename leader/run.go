package leader

import (
	"context"
	"errors"
	"fmt"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/ident"
	"github.com/aetomala/worklease/internal/pause"
)

// Run keeps this process standing for election on workID, through lost leases, errors of fn and outages
// of the store, until fn returns nil or an error matching [worklease.ErrRetire], or ctx ends.
//
// It goes through terms as [Elect] does, and pauses between them: for IdleInterval while somebody else
// leads, or until the store tells that the lease is free, and otherwise for BackoffInterval, which is 1 s
// unless cfg says otherwise. What it goes on from is told to OnError alone.
//
// Run returns nil once fn has finished or retired, or the error of a release that failed then; if the
// lease was lost meanwhile it goes on. When ctx ends it returns an error matching ctx.Err(), joined with
// that of the last term, if there was one. What cannot get better is returned at once: a nil lease or fn,
// or a work ID that no store takes. A panic of fn goes on to the caller.
//
// The other processes are not told that fn finished: each of them runs fn in its turn. A function that
// must not run again records that itself.
func Run(ctx context.Context, lease worklease.Lease, workID string, cfg Config, fn func(ctx context.Context) error) error {
	if err := check(ctx, lease, fn); err != nil {
		return err
	}
	if err := ident.Check(workID); err != nil {
		return fmt.Errorf("worklease: stand for election on %q: the work ID %w", workID, err)
	}
	if cfg.BackoffInterval <= 0 {
		cfg.BackoffInterval = defaultBackoffInterval
	}
	defer cfg.Health.rest()
	idle, stop, _ := pause.Watch(lease, workID)
	defer stop()
	for {
		t := &term{ctx: ctx, cfg: cfg, fn: fn}
		result := t.serve(lease, workID)
		// What fn says of another lease is no news of this one.
		held := result.Token == (worklease.Token{}) && errors.Is(result.Err, worklease.ErrLeaseHeld)
		switch {
		case result.Err == nil, t.finished && !result.Lost:
			return result.Err
		case ctx.Err() != nil && held:
			return ended(ctx, workID, nil)
		case ctx.Err() != nil:
			return ended(ctx, workID, result.Err)
		case !held && cfg.OnError != nil:
			cfg.OnError(ctx, result.Err)
		}
		// No failure may spin, and those who fail together had better not try together.
		wait, sleep := pause.Jitter(cfg.BackoffInterval, jitter), pause.Sleep
		if held {
			wait, sleep = cfg.idle(), idle
		}
		if cfg.Health.wait(ctx, wait, sleep) != nil {
			return ended(ctx, workID, nil)
		}
	}
}

// ended says that ctx has ended, and what else went wrong with the last term.
func ended(ctx context.Context, workID string, err error) error {
	switch {
	case err == nil:
		err = ctx.Err()
	case !errors.Is(err, ctx.Err()):
		err = errors.Join(ctx.Err(), err)
	}
	return fmt.Errorf("worklease: stand for election on %q: %w", workID, err)
}
