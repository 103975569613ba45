package pool

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/aetomala/worklease"
)

const (
	defaultInterval = time.Second
	// longestInterval leaves room for what is added to an interval.
	longestInterval = math.MaxInt64 / 2
)

// What [New] refuses. Each error matches ErrConfigInvalid, and that [worklease.ErrConfigInvalid].
var (
	ErrConfigInvalid = fmt.Errorf("%w: pool", worklease.ErrConfigInvalid)

	ErrLeaseRequired   = fmt.Errorf("%w: a Lease is required", ErrConfigInvalid)
	ErrWorkFnRequired  = fmt.Errorf("%w: a WorkFn is required", ErrConfigInvalid)
	ErrEmptyWorkIDs    = fmt.Errorf("%w: there are no work IDs", ErrConfigInvalid)
	ErrEmptyWorkID     = fmt.Errorf("%w: a work ID is empty", ErrConfigInvalid)
	ErrDuplicateWorkID = fmt.Errorf("%w: a work ID is there twice", ErrConfigInvalid)
	// ErrWithWaitForLeaseProhibited says that the AcquireOptions have [worklease.WithWaitForLease]: the
	// slots do the waiting.
	ErrWithWaitForLeaseProhibited = fmt.Errorf("%w: WithWaitForLease is not for the slots of a pool", ErrConfigInvalid)
)

// Config configures a [Pool]. WorkIDs is required.
type Config struct {
	// WorkIDs are what to work on, one slot each, in any order. None is empty, and none is there twice. One
	// that Acquire refuses for what it consists of shows in OnSlotBackoff.
	WorkIDs []string
	// AcquireOptions are those of every Acquire, without [worklease.WithWaitForLease].
	AcquireOptions []worklease.AcquireOption
	RenewalOptions []worklease.RenewalOption

	// IdleInterval is how long a slot waits before it asks again for a lease that is held elsewhere: this
	// long, and up to 20 % more. When another process stops in good order, its work IDs are taken over
	// within that time, or at once on a store that tells of it.
	//
	// Where the store can say which of many work IDs are free, all idle slots of a pool cost it one read in each
	// interval, or one for every 10,000. Elsewhere they share the interval out among them, so that their
	// attempts come evenly spread: with 1,000 idle slots and the default of 1 s the store sees one about
	// every millisecond. What is free at the start is begun soon whatever the interval: those attempts are at
	// most 2 ms apart. Zero and less mean 1 s.
	IdleInterval time.Duration
	// RerunInterval is how long a slot waits after a success, plus up to 20 %. The lease is released
	// meanwhile, and whoever asks first has it. Zero and less mean 1 s.
	RerunInterval time.Duration
	// BackoffInterval is how long a slot waits after an error. Zero and less mean 1 s.
	//
	// A slot that is fenced three times running, each time within BackoffInterval of acquiring, waits for it,
	// too: its stored lease keeps vanishing, and it would go round without a pause.
	BackoffInterval time.Duration
	// CleanupTimeout bounds the final checkpoint and the release of a run together, by the local clock and
	// whatever the store does. The last quarter is kept for the release. Zero and less mean 5 s.
	CleanupTimeout time.Duration

	// Observer is told what becomes of the slots. It may be nil.
	Observer Observer
}

// checked returns a copy of c with sorted work IDs and every default filled in.
func (c Config) checked() (Config, error) {
	if len(c.WorkIDs) == 0 {
		return Config{}, ErrEmptyWorkIDs
	}
	c.WorkIDs = slices.Sorted(slices.Values(c.WorkIDs))
	for i, id := range c.WorkIDs {
		if id == "" {
			return Config{}, ErrEmptyWorkID
		}
		if i > 0 && id == c.WorkIDs[i-1] {
			return Config{}, fmt.Errorf("%w: %q", ErrDuplicateWorkID, id)
		}
	}
	if worklease.HasWaitForLease(c.AcquireOptions) {
		return Config{}, ErrWithWaitForLeaseProhibited
	}
	c.AcquireOptions = slices.Clone(c.AcquireOptions)
	c.RenewalOptions = slices.Clone(c.RenewalOptions)
	for _, d := range []*time.Duration{&c.IdleInterval, &c.RerunInterval, &c.BackoffInterval} {
		if *d <= 0 {
			*d = defaultInterval
		}
		*d = min(*d, longestInterval)
	}
	if c.Observer == nil {
		c.Observer = NoopObserver{}
	}
	return c, nil
}
