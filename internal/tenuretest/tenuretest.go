// Package tenuretest has what the tests of tenures need, be they a worker's, a leader's or a slot's. Only
// tests import it.
package tenuretest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/internal/faulty"
)

// TTL is that of the leases.
const TTL = 10 * time.Second

// Errors that match no sentinel: a store's, the work's, and the cause of a shutdown.
var (
	ErrStore    = errors.New("store: connection reset")
	ErrWork     = errors.New("work failed")
	ErrShutdown = errors.New("shutting down")
)

// NewStore returns a memory store that a test can stand in front of.
func NewStore() *faulty.Store { return &faulty.Store{Backend: memory.New()} }

// LeaseOf returns a Lease of holderID.
func LeaseOf(tb testing.TB, b backend.Backend, holderID string) worklease.Lease {
	tb.Helper()
	lease, err := worklease.New(b, worklease.Config{TTL: TTL, HolderID: holderID})
	if err != nil {
		tb.Fatal(err)
	}
	return lease
}

// RecordOf returns what token is to a store.
func RecordOf(token worklease.Token) backend.LeaseRecord {
	return backend.LeaseRecord{WorkID: token.WorkID(), HolderID: token.HolderID(), FencingToken: token.FencingToken()}
}

// TakeOver makes a rival acquire for d what token holds, as after a pause longer than the TTL.
func TakeOver(tb testing.TB, b backend.Backend, token worklease.Token, d time.Duration) {
	tb.Helper()
	ctx := context.WithoutCancel(tb.Context())
	if err := b.Release(ctx, RecordOf(token), backend.ExitAbandoned); err != nil {
		tb.Error(err)
	}
	if _, err := b.Acquire(ctx, token.WorkID(), "rival", d); err != nil {
		tb.Error(err)
	}
}

// RenewFails takes the place of a Renew.
func RenewFails(context.Context, backend.LeaseRecord, time.Duration) error { return ErrStore }

// AwaitEnd waits for ctx to end, but not for ever: a test that fails is to fail, not to hang.
func AwaitEnd(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(24 * time.Hour):
	}
}

// WantErr checks that err matches what is wanted, and of everything that has a meaning here nothing
// else. nil is wanted if nothing is.
func WantErr(tb testing.TB, err error, wanted ...error) {
	tb.Helper()
	if len(wanted) == 0 && err != nil {
		tb.Errorf("error = %v, want none", err)
	}
	for _, target := range wanted {
		if !errors.Is(err, target) {
			tb.Errorf("error = %v, does not match %v", err, target)
		}
	}
	for _, target := range []error{
		worklease.ErrFenced, worklease.ErrLeaseHeld, worklease.ErrLeaseExpired, worklease.ErrInvalidExitMode,
		worklease.ErrLeaseWindowExhausted, worklease.ErrRetire, worklease.ErrConfigInvalid,
		context.Canceled, context.DeadlineExceeded, ErrStore, ErrWork, ErrShutdown,
	} {
		if errors.Is(err, target) && !slices.Contains(wanted, target) {
			tb.Errorf("error = %v, matches %v", err, target)
		}
	}
}
