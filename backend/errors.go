package backend

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrFenced says that the lease is not the caller's: another tenure has begun, or there is no row.
	ErrFenced = errors.New("fenced: the lease belongs to another tenure or to none")
	// ErrLeaseHeld says that somebody holds the lease.
	ErrLeaseHeld = errors.New("lease is held")
	// ErrLeaseExpired says that the lease was the caller's, and that it lapsed or was released.
	ErrLeaseExpired = errors.New("lease has lapsed or was released")
	// ErrInvalidExitMode says that an exit mode is none that a holder may declare.
	ErrInvalidExitMode = errors.New("exit mode is not finished, abandoned or retired")
)

// HeldError is the [ErrLeaseHeld] of a store that knows who holds the lease.
type HeldError struct {
	WorkID   string
	HolderID string
	// ExpiresAt is when the lease ends unless it is renewed, on the store's clock.
	ExpiresAt time.Time
	// Exit is how the holder has left, if its release is yet to take effect, see [DelayedReleaser]. It is
	// [ExitNone] while the holder is at work, and where the store does not tell.
	Exit ExitMode
}

// Error names the work, its holder and the expiry in UTC.
func (e *HeldError) Error() string {
	return fmt.Sprintf("lease is held: %q by %q until %s",
		e.WorkID, e.HolderID, e.ExpiresAt.UTC().Format(time.RFC3339Nano))
}

// Unwrap returns [ErrLeaseHeld].
func (e *HeldError) Unwrap() error { return ErrLeaseHeld }
