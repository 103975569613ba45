package model

import (
	"fmt"
	"time"

	"github.com/aetomala/worklease/backend"
)

// Row is what a store keeps of one work ID. The zero Row is no row at all. A Row is a value: methods
// return what becomes of it, which is itself if there is an error.
type Row struct {
	HolderID     string
	Token        uint64 // above zero in every row that is there
	ExpiresAt    time.Time
	UpdatedAt    time.Time        // the last acquire, checkpoint or release
	State        string           // "" is no state
	Exit         backend.ExitMode // declared by the current or last holder; ExitNone if it has not
	PrevExit     backend.ExitMode // as captured by the acquisition, and so is PrevHolderID
	PrevHolderID string
}

// Exists reports whether there is a row.
func (r Row) Exists() bool { return r.Token != 0 }

// Over reports whether the expiry has passed, which it has at its very instant.
func (r Row) Over(now time.Time) bool { return !now.Before(r.ExpiresAt) }

// Matches reports whether record is that of the row's tenure. The work ID is not the row's to compare.
func (r Row) Matches(record backend.LeaseRecord) bool {
	return r.Exists() && r.HolderID == record.HolderID && r.Token == record.FencingToken
}

// Acquire begins a tenure, for which token has been drawn.
func (r Row) Acquire(now time.Time, holderID string, token uint64, ttl time.Duration) (Row, error) {
	next := Row{HolderID: holderID, Token: token, ExpiresAt: now.Add(ttl), UpdatedAt: now, State: r.State}
	switch {
	case !r.Exists():
	case !r.Over(now):
		return r, backend.ErrLeaseHeld
	case r.Exit == backend.ExitNone:
		next.PrevExit, next.PrevHolderID = backend.ExitExpired, r.HolderID
	default:
		next.PrevExit, next.PrevHolderID = r.Exit, r.HolderID
	}
	return next, nil
}

// Checkpoint stores a state and extends the lease. One that has lapsed is revived.
func (r Row) Checkpoint(now time.Time, record backend.LeaseRecord, state string, ttl time.Duration) (Row, error) {
	switch {
	case !r.Matches(record):
		return r, backend.ErrFenced
	case r.Exit != backend.ExitNone:
		return r, backend.ErrLeaseExpired
	}
	r.State, r.ExpiresAt, r.UpdatedAt = state, now.Add(ttl), now
	return r, nil
}

// Renew extends a lease that is not over. It is no update.
func (r Row) Renew(now time.Time, record backend.LeaseRecord, ttl time.Duration) (Row, error) {
	switch {
	case !r.Matches(record):
		return r, backend.ErrFenced
	case r.Exit != backend.ExitNone, r.Over(now):
		return r, backend.ErrLeaseExpired
	}
	r.ExpiresAt = now.Add(ttl)
	return r, nil
}

// Release declares an exit and ends a lease that is not over.
func (r Row) Release(now time.Time, record backend.LeaseRecord, mode backend.ExitMode) (Row, error) {
	switch {
	case mode != backend.ExitFinished && mode != backend.ExitAbandoned && mode != backend.ExitRetired:
		return r, fmt.Errorf("%w: %v", backend.ErrInvalidExitMode, mode)
	case !r.Matches(record):
		return r, backend.ErrFenced
	case r.Exit != backend.ExitNone, r.Over(now):
		return r, backend.ErrLeaseExpired
	}
	r.Exit, r.ExpiresAt, r.UpdatedAt = mode, now, now
	return r, nil
}

// ReadCheckpoint returns what the tenure finds, over or not.
func (r Row) ReadCheckpoint(record backend.LeaseRecord) (backend.Checkpoint, error) {
	if !r.Matches(record) {
		return backend.Checkpoint{}, backend.ErrFenced
	}
	found := backend.Checkpoint{PrevExit: r.PrevExit, PrevHolderID: r.PrevHolderID}
	if r.State != "" {
		found.State = []byte(r.State)
	}
	return found, nil
}

// Forget removes the row, over or not.
func (r Row) Forget(record backend.LeaseRecord) (Row, error) {
	if !r.Matches(record) {
		return r, backend.ErrFenced
	}
	return Row{}, nil
}

// Swept reports whether a Sweep removes the row.
func (r Row) Swept(now time.Time, opts backend.SweepOptions) bool {
	retired := r.Exit == backend.ExitRetired
	lapsed := r.Exit == backend.ExitNone && opts.IncludeExpired
	return r.Exists() && r.Over(now) && (retired || lapsed) && now.Sub(r.LastUpdate()) > opts.Retention
}

// LastUpdate is the instant from which a retention is counted.
func (r Row) LastUpdate() time.Time {
	if r.Exit == backend.ExitNone && r.ExpiresAt.After(r.UpdatedAt) {
		return r.ExpiresAt
	}
	return r.UpdatedAt
}
