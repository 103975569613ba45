package backend

import "time"

// LeaseRecord identifies one tenure: one holder's time with one work ID, from Acquire on. It is a
// value, safe to copy and to keep. The zero LeaseRecord matches no row.
type LeaseRecord struct {
	WorkID   string
	HolderID string
	// FencingToken is greater than zero in every record that a store returns.
	FencingToken uint64
	// ExpiresAt is the expiry as stored by the Acquire that returned the record, on the store's
	// clock. It is information: later renewals do not change it, and no store compares it.
	ExpiresAt time.Time
}

// Checkpoint is what a holder finds: the state saved last, by whichever holder, and how the holder
// before it left.
type Checkpoint struct {
	// State belongs to the reader. It is nil if there is none.
	State []byte
	// PrevExit is [ExitNone] for the first holder of a work ID.
	PrevExit ExitMode
	// PrevHolderID is empty with ExitNone.
	PrevHolderID string
}

// SweepOptions selects the rows that a Sweep deletes: those that are not held, whose declared exit is
// retired, and whose last update is more than Retention ago.
//
// The last update of a row is its last acquire, checkpoint or release; of a lease that lapsed with no
// exit declared it is the expiry, if that is later.
type SweepOptions struct {
	// Retention is counted on the store's clock. A store takes zero and negative values as they are;
	// the root package refuses them.
	Retention time.Duration
	// IncludeExpired also selects leases that lapsed with no exit declared. Their checkpoints, from
	// which a successor would have resumed, are lost.
	IncludeExpired bool
}
