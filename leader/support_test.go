package leader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/leader"
)

const (
	ttl    = 10 * time.Second
	workID = "scheduler"
)

var (
	errStore    = errors.New("store: connection reset")
	errWork     = errors.New("work failed")
	errShutdown = errors.New("shutting down")
)

func newStore() *faulty.Store { return &faulty.Store{Backend: memory.New()} }

func leaseOf(t *testing.T, b backend.Backend, holderID string) worklease.Lease {
	t.Helper()
	lease, err := worklease.New(b, worklease.Config{TTL: ttl, HolderID: holderID})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// story is what happened, in order, and when.
type story struct {
	mu     sync.Mutex
	start  time.Time
	events []string
}

func newStory() *story { return &story{start: time.Now()} }

func (s *story) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf(format, args...)+" at "+time.Since(s.start).String())
}

func (s *story) want(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.events, want) {
		t.Errorf("events = %q\nwant     %q", s.events, want)
	}
}

// told returns cfg with callbacks that tell s.
func (s *story) told(cfg leader.Config) leader.Config {
	tell := func(what string) func(context.Context, worklease.Token) {
		return func(_ context.Context, token worklease.Token) {
			if token.WorkID() != workID || token.FencingToken() == 0 {
				what += " with the token " + token.String()
			}
			s.add("%s", what)
		}
	}
	cfg.OnElected, cfg.OnLost, cfg.OnRelinquished = tell("elected"), tell("lost"), tell("relinquished")
	cfg.OnError = func(context.Context, error) { s.add("error") }
	return cfg
}

// exitFound acquires the lease as a successor and returns how the last leader left.
func exitFound(t *testing.T, s *faulty.Store) worklease.ExitMode {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	record, err := s.Backend.Acquire(ctx, workID, "successor", ttl)
	if err != nil {
		t.Fatalf("the successor does not get the lease: %v", err)
	}
	found, err := s.Backend.ReadCheckpoint(ctx, record)
	if err != nil {
		t.Fatal(err)
	}
	return found.PrevExit
}

// takeOver makes a rival hold the lease, as after a pause longer than the TTL.
func takeOver(t *testing.T, s *faulty.Store, token worklease.Token) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	record := backend.LeaseRecord{WorkID: token.WorkID(), HolderID: token.HolderID(), FencingToken: token.FencingToken()}
	if err := s.Backend.Release(ctx, record, backend.ExitAbandoned); err != nil {
		t.Error(err)
	}
	if _, err := s.Backend.Acquire(ctx, workID, "rival", time.Hour); err != nil {
		t.Error(err)
	}
}

func wantErr(t *testing.T, err error, wanted ...error) {
	t.Helper()
	if len(wanted) == 0 && err != nil {
		t.Errorf("error = %v, want none", err)
	}
	for _, target := range wanted {
		if !errors.Is(err, target) {
			t.Errorf("error = %v, does not match %v", err, target)
		}
	}
	for _, target := range []error{
		worklease.ErrFenced, worklease.ErrLeaseHeld, worklease.ErrLeaseExpired, worklease.ErrLeaseWindowExhausted,
		worklease.ErrRetire, worklease.ErrConfigInvalid, context.Canceled, context.DeadlineExceeded,
		errStore, errWork, errShutdown,
	} {
		if errors.Is(err, target) && !slices.Contains(wanted, target) {
			t.Errorf("error = %v, matches %v", err, target)
		}
	}
}

func returns(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

func neverCalled(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("the function was called")
		return nil
	}
}

// awaitEnd waits for ctx to end, but not for ever: a test that fails is to fail, not to hang.
func awaitEnd(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(24 * time.Hour):
	}
}

func renewFails(context.Context, backend.LeaseRecord, time.Duration) error { return errStore }
