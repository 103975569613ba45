package worklease

import (
	"context"
	"fmt"
	"time"

	"github.com/aetomala/worklease/backend"
)

// SweepOptions selects what a sweep deletes: rows of retired work and, with IncludeExpired, of leases
// that lapsed, whose last update is more than Retention ago on the store's clock.
type SweepOptions = backend.SweepOptions

// Vacuum deletes the rows of work that is over. Nothing else deletes a row, but [Lease.Forget]. It is
// safe for concurrent use, by one process or many.
type Vacuum struct {
	backend  backend.Backend
	observer VacuumObserver
}

// VacuumConfig configures a [Vacuum]. The zero value is fine.
type VacuumConfig struct {
	// Observer is told of every sweep that reached the store. nil: nobody is.
	Observer VacuumObserver
}

// VacuumObserver is told of sweeps, synchronously, in the goroutine of the caller.
type VacuumObserver interface {
	OnSweep(context.Context, SweepEvent)
}

// SweepEvent describes one sweep. Deleted may be positive although Err is not nil.
type SweepEvent struct {
	Options  SweepOptions
	Deleted  int64
	Duration time.Duration
	Err      error
}

// NoopVacuumObserver is a [VacuumObserver] that does nothing, to be embedded.
type NoopVacuumObserver struct{}

func (NoopVacuumObserver) OnSweep(context.Context, SweepEvent) {}

// NewVacuum returns a Vacuum for the store b. A nil b gives [ErrNilBackend].
func NewVacuum(b backend.Backend, cfg VacuumConfig) (*Vacuum, error) {
	if b == nil {
		return nil, fmt.Errorf("worklease: new vacuum: %w", ErrNilBackend)
	}
	return &Vacuum{backend: b, observer: cfg.Observer}, nil
}

// Sweep deletes what opts selects and returns how many rows it deleted, also along with an error. It
// never deletes a held lease, nor work that was left finished or abandoned. Who acquires a work ID that
// was swept finds it new: neither state nor a previous exit. A Retention of zero or
// less gives [ErrRetentionRequired], and a zero Vacuum [ErrNilBackend], before the store is called.
// ctx bounds the sweep; what was deleted before it ended stays deleted.
func (v *Vacuum) Sweep(ctx context.Context, opts SweepOptions) (int64, error) {
	switch {
	case v == nil || v.backend == nil:
		return 0, fmt.Errorf("worklease: sweep: %w", ErrNilBackend)
	case ctx == nil:
		return 0, fmt.Errorf("worklease: sweep: %w", errNilContext)
	case opts.Retention <= 0:
		return 0, fmt.Errorf("worklease: sweep: %w, not %v", ErrRetentionRequired, opts.Retention)
	}
	start := time.Now()
	deleted, err := v.backend.Sweep(ctx, opts)
	if err != nil {
		err = fmt.Errorf("worklease: sweep: %w", err)
	}
	if v.observer != nil {
		v.observer.OnSweep(ctx, SweepEvent{Options: opts, Deleted: deleted, Duration: time.Since(start), Err: err})
	}
	return deleted, err
}
