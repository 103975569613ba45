package leader_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/internal/tenuretest"
	"github.com/aetomala/worklease/leader"
)

const (
	ttl    = tenuretest.TTL
	workID = "scheduler"
)

var (
	errStore, errWork, errShutdown = tenuretest.ErrStore, tenuretest.ErrWork, tenuretest.ErrShutdown

	newStore   = tenuretest.NewStore
	leaseOf    = tenuretest.LeaseOf
	wantErr    = tenuretest.WantErr
	awaitEnd   = tenuretest.AwaitEnd
	renewFails = tenuretest.RenewFails
)

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

func returns(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

func neverCalled(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("the function was called")
		return nil
	}
}

// takeOver makes a rival hold the lease, as after a pause longer than the TTL.
func takeOver(t *testing.T, s *faulty.Store, token worklease.Token) {
	tenuretest.TakeOver(t, s.Backend, token, time.Hour)
}
