package worklease

import (
	"errors"
	"fmt"

	"github.com/aetomala/worklease/backend"
)

// Match these with [errors.Is]: what the methods of this module return wraps them, with the
// operation, the work ID and the holder ID in the text.
var (
	// ErrFenced says that the lease is not the caller's: another tenure has begun, or the row is
	// gone. Whatever the caller still does, it does not do as the holder.
	ErrFenced = backend.ErrFenced
	// ErrLeaseHeld says that somebody holds the lease, perhaps the same holder ID: a lease is not
	// re-entrant. [errors.As] finds a [*HeldError] beside it if the store knows who.
	ErrLeaseHeld = backend.ErrLeaseHeld
	// ErrLeaseExpired says that the lease was the caller's, and that it lapsed or was released.
	// Nobody had claimed it yet when the store said so.
	ErrLeaseExpired = backend.ErrLeaseExpired
	// ErrInvalidExitMode says that a mode is none of [ExitFinished], [ExitAbandoned] and [ExitRetired].
	ErrInvalidExitMode = backend.ErrInvalidExitMode

	// ErrLeaseWindowExhausted says that the holder can no longer be sure of its lease: the window
	// closed before a renewal succeeded.
	ErrLeaseWindowExhausted = errors.New("lease window exhausted")
	// ErrRetire is returned by work functions, not by this module: the work is done for good, and is
	// to be released as [ExitRetired].
	ErrRetire = errors.New("retire this work")

	// ErrConfigInvalid is matched by every error about a configuration: those of [New], and the
	// config errors of this and the other packages.
	ErrConfigInvalid = errors.New("invalid configuration")
	// ErrNilBackend says that no backend was given. It matches ErrConfigInvalid.
	ErrNilBackend = fmt.Errorf("%w: the backend is nil", ErrConfigInvalid)
	// ErrRetentionRequired says that a sweep was asked for without a positive retention. It matches
	// ErrConfigInvalid.
	ErrRetentionRequired = fmt.Errorf("%w: a sweep needs a positive retention", ErrConfigInvalid)
)

// HeldError is the [ErrLeaseHeld] of a store that knows who holds the lease, and until when.
type HeldError = backend.HeldError

var errNilContext = errors.New("the context is nil")
