// Package worker runs a function under a lease: one call of [Runner.Run] acquires the lease on a work
// ID, hands the function what the last holder left, keeps the lease renewed, and records how the
// function ended for the next holder.
//
// How a run ends follows from the function's result; the first row that fits counts:
//
//	what happens                          final state  recorded   Run returns
//	the lease is not acquired             -            -          that error
//	the checkpoint cannot be read         -            nothing    that error
//	fenced, by error or by renewal        not saved    nothing    an error matching ErrFenced
//	the lease window ran out              not saved    nothing    the function's error joined with the cause
//	an error matching ErrRetire           saved        retired    nil
//	nil                                   saved        finished   nil
//	any other error                       saved        abandoned  that error
//	a panic or runtime.Goexit             not saved    nothing    it goes on to the caller of Run
//
// Where nothing is recorded and nobody else has taken over, the next holder sees an expired lease, with
// the state saved last. An error of the final save or of the release is returned too, joined with the
// function's: nil always means that the work succeeded and that its exit is recorded.
package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/tenure"
)

var (
	// ErrLeaseRequired says that a RunnerConfig has no Lease. It matches [worklease.ErrConfigInvalid].
	ErrLeaseRequired = fmt.Errorf("%w: worker: a Lease is required", worklease.ErrConfigInvalid)
	// ErrWorkFnRequired says that a RunnerConfig has no WorkFn. It matches [worklease.ErrConfigInvalid].
	ErrWorkFnRequired = fmt.Errorf("%w: worker: a WorkFn is required", worklease.ErrConfigInvalid)
)

// WorkFn does the work of one tenure.
//
// ctx ends when the lease is lost or when the context given to Run ends, and [context.Cause] tells
// which; [worklease.LeaseWindow] says how long the lease is sure. In the second case the lease stays
// renewed until WorkFn has returned, however long that takes, so that it can save its state in peace.
// ctx carries the values of Run's context, but not its deadline: when that passes, ctx.Err() is
// [context.Canceled], and the cause [context.DeadlineExceeded].
//
// prior is what the last holder left; a fresh work ID has a zero Checkpoint. To lose less in a crash,
// WorkFn calls Lease.Checkpoint with token while it works. One that is cut off as ctx ends may still reach the
// store later, and replace the final state: let it be made under [context.WithoutCancel], with a timeout.
//
// The state returned is saved as the final checkpoint: nil leaves the last one as it is, and an empty
// one clears it. Runner does not keep the slice, but a save that CleanupTimeout cut off may still read it.
//
// The lease is Run's to give up: WorkFn must neither release nor forget it. Work that is done for good
// returns [worklease.ErrRetire].
type WorkFn func(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error)

// RunnerConfig configures a [Runner]. Lease and WorkFn are required.
type RunnerConfig struct {
	Lease  worklease.Lease
	WorkFn WorkFn
	// AcquireOptions are those of every Acquire: with none, a run that finds the lease held returns
	// [worklease.ErrLeaseHeld] at once.
	AcquireOptions []worklease.AcquireOption
	RenewalOptions []worklease.RenewalOption
	// CleanupTimeout bounds the final checkpoint and the release together, by the local clock and
	// whatever the store does. The last quarter is kept for the release. Zero and less mean 5 s.
	CleanupTimeout time.Duration
}

// Runner runs a WorkFn under leases. It is safe for concurrent use.
type Runner struct {
	workFn WorkFn
	tenure tenure.Config
}

// NewRunner returns a Runner, or [ErrLeaseRequired] or [ErrWorkFnRequired]. It keeps no slice of cfg.
func NewRunner(cfg RunnerConfig) (*Runner, error) {
	if cfg.Lease == nil {
		return nil, ErrLeaseRequired
	}
	if cfg.WorkFn == nil {
		return nil, ErrWorkFnRequired
	}
	return &Runner{
		workFn: cfg.WorkFn,
		tenure: tenure.Config{
			Lease:          cfg.Lease,
			AcquireOptions: slices.Clone(cfg.AcquireOptions),
			RenewalOptions: slices.Clone(cfg.RenewalOptions),
			CleanupTimeout: cfg.CleanupTimeout,
		},
	}, nil
}

// Run goes through one tenure of workID, as the package comment says. It blocks until WorkFn has
// returned and the exit is recorded, or CleanupTimeout has passed with that.
//
// Cancelling ctx ends a wait for the lease, and tells WorkFn to stop; it cuts off neither the final
// checkpoint nor the release. A zero Runner returns [ErrLeaseRequired].
func (r *Runner) Run(ctx context.Context, workID string) error {
	if r == nil || r.workFn == nil {
		return ErrLeaseRequired
	}
	return tenure.Run(ctx, workID, r.tenure, tenure.Work(r.workFn)).Err
}
