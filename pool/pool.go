// Package pool works on many work IDs in one process: it has a slot for each, and every slot tries to
// acquire its work ID, runs the function while it holds the lease, and begins again. Any number of
// processes may run a pool of the same work IDs; each ID is worked on by one of them at a time, and
// when a process stops the others take over what it had.
//
// Nothing gives work back: the process that comes first has all it can get until it stops, or until its
// function returns and another process is quicker.
//
// A run of the function goes as in package worker: the lease is renewed meanwhile, the state that it
// returns is saved, and its exit recorded. What the slot does then follows from how the run ended; the
// first row that fits counts:
//
//	how the run ended                      event            then
//	retired: ErrRetire, and recorded       OnSlotRetired    the slot ends
//	Run's context has ended                -                the slot ends
//	success                                -                again after RerunInterval, plus up to 20 %
//	fenced                                 OnSlotLost       again at once
//	a PermanentError                       OnSlotDead       the slot ends, and is dead
//	the lease is held elsewhere            -                again after IdleInterval, plus up to 20 %
//	any other error                        OnSlotBackoff    again after BackoffInterval
//
// A lease window that ran out is one of the other errors, unless the function returned a
// PermanentError: nobody else may have had the lease. An ErrRetire that could not be recorded is the error
// of the call that failed. Only what Acquire says counts as held elsewhere, and only what happens after it
// as fenced.
//
// A slot is idle from the start, and again when the lease is held elsewhere. On a store that tells which of
// many work IDs are free, as PostgreSQL, Redis and memory do, idle slots make no attempts. The pool looks for
// all of them in one read, as Run begins and once in each IdleInterval, and what that finds decides:
//
//	the look says       then the idle slot
//	free                tries, soon and at the latest 1.2 IdleIntervals after the release; no sooner than an
//	                    IdleInterval after it was refused
//	held                stays idle
//	nothing: it failed  tries by itself, in each IdleInterval plus up to 20 %, until a look succeeds
//
// The slots that try do so one after the other, in random order and up to 2 ms apart. One that is refused after
// all, since another process was quicker, is idle again. A look that fails, or has no answer after 2 s, is
// no event: what is wrong with the store is told by the attempts that follow. On a store that cannot tell, and
// through a Lease that embeds another, every idle slot tries by itself, as after a look that failed. A
// store that tells at once what becomes free has its idle slots try at once, besides. If it tells of many together, of
// all, say, when it could tell nothing for a while, the pool looks which of them are free, and they try 2 ms apart
// until that is known.
package pool

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/tenure"
)

// WorkFn does the work of one tenure of workID. It is called from many goroutines, for one work ID never
// again before it has returned.
//
// ctx ends when the lease is lost or when the context given to Run ends, and [context.Cause] tells
// which; [worklease.LeaseWindow] says how long the lease is sure. In the second case the lease stays
// renewed until WorkFn has returned, so that it can save its state in peace. ctx carries the values of
// Run's context, but not its deadline.
//
// prior is what the last holder left; a fresh work ID has a zero Checkpoint. To lose less in a crash,
// WorkFn calls Lease.Checkpoint with token while it works. The state returned is saved as the final
// checkpoint: nil leaves the last one as it is, and an empty one clears it. The slice is not kept, but a
// save that CleanupTimeout cut off may still read it.
//
// Work that is done for good returns [worklease.ErrRetire], and work that cannot succeed in this process
// an error made with [Permanent]. WorkFn must neither release nor forget the lease.
type WorkFn func(ctx context.Context, workID string, token worklease.Token, prior worklease.Checkpoint) ([]byte, error)

var (
	// ErrAllSlotsDead says that no slot is left, since each ended with a [PermanentError].
	ErrAllSlotsDead = errors.New("pool: every slot is dead")

	errNilContext = errors.New("pool: the context is nil")
	errRunning    = errors.New("pool: Run has been called before, and has not returned yet")
)

// Pool runs a WorkFn under the leases of its work IDs. It is safe for concurrent use, but for one Run
// at a time.
type Pool struct {
	cfg     Config
	tenure  tenure.Config
	workFn  WorkFn
	active  []atomic.Bool // in the order of cfg.WorkIDs, which is sorted
	running atomic.Bool
}

// New returns a Pool, or an error that matches [ErrConfigInvalid] and says what is wrong. It keeps no
// slice of cfg.
func New(lease worklease.Lease, cfg Config, fn WorkFn) (*Pool, error) {
	switch {
	case lease == nil:
		return nil, ErrLeaseRequired
	case fn == nil:
		return nil, ErrWorkFnRequired
	}
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	return &Pool{
		cfg: cfg,
		tenure: tenure.Config{
			Lease:          lease,
			AcquireOptions: cfg.AcquireOptions,
			RenewalOptions: cfg.RenewalOptions,
			CleanupTimeout: cfg.CleanupTimeout,
		},
		workFn: fn,
		active: make([]atomic.Bool, len(cfg.WorkIDs)),
	}, nil
}

// Run runs all slots until ctx ends or every slot has ended, as the package comment says. It returns
// [ErrAllSlotsDead] if every slot is dead and nil in every other case, once each WorkFn has returned
// and its final checkpoint and exit are recorded, or CleanupTimeout has passed with that.
//
// A slot that panics, in WorkFn or in the observer, stops the whole pool: nothing is recorded for its work
// ID, the other slots end as if ctx had, and then Run panics with an error that wraps the value, if that
// is an error, and has the value and the stack in its text. [runtime.Goexit] in a slot likewise ends
// the goroutine of Run.
//
// A nil ctx is an error, and so is a Run while another has not returned. After that it begins afresh, with
// all slots. A zero Pool returns [ErrLeaseRequired].
func (p *Pool) Run(ctx context.Context) error {
	if p == nil || p.workFn == nil {
		return ErrLeaseRequired
	}
	if ctx == nil {
		return errNilContext
	}
	if !p.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer p.running.Store(false)
	return p.runSlots(ctx)
}

// ActiveSlots returns the work IDs whose WorkFn runs now, sorted. The slice is the caller's, and never
// nil.
func (p *Pool) ActiveSlots() []string {
	ids := []string{}
	if p == nil {
		return ids
	}
	for i := range p.active {
		if p.active[i].Load() {
			ids = append(ids, p.cfg.WorkIDs[i])
		}
	}
	return ids
}
