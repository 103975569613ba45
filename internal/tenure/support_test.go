package tenure_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/internal/faulty"
)

const (
	ttl    = 10 * time.Second
	workID = "report"
)

var (
	errStore    = errors.New("store: connection reset")
	errWork     = errors.New("work failed")
	errShutdown = errors.New("shutting down")
)

func newStore() *faulty.Store { return &faulty.Store{Backend: memory.New()} }

func newLease(t *testing.T, b backend.Backend) worklease.Lease {
	t.Helper()
	lease, err := worklease.New(b, worklease.Config{TTL: ttl, HolderID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// takeOver makes another holder acquire what token holds, as after a pause longer than the TTL.
func takeOver(t *testing.T, s *faulty.Store, token worklease.Token) {
	t.Helper()
	if err := s.Backend.Release(t.Context(), recordOf(token), backend.ExitAbandoned); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backend.Acquire(t.Context(), token.WorkID(), "rival", time.Hour); err != nil {
		t.Fatal(err)
	}
}

func recordOf(token worklease.Token) backend.LeaseRecord {
	return backend.LeaseRecord{WorkID: token.WorkID(), HolderID: token.HolderID(), FencingToken: token.FencingToken()}
}

func renewFails(context.Context, backend.LeaseRecord, time.Duration) error { return errStore }

func untilDone(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
	awaitEnd(ctx)
	return nil, errWork
}

// storeAndToken is a store whose renewals fail while it is down, and who works on it.
type storeAndToken struct {
	*faulty.Store
	lease worklease.Lease
	token worklease.Token
	down  atomic.Bool
}

func newStoreAndToken(t *testing.T) *storeAndToken {
	s := &storeAndToken{Store: newStore()}
	s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
		if s.down.Load() {
			return errStore
		}
		return s.Backend.Renew(ctx, record, ttl)
	}
	s.lease = newLease(t, s)
	return s
}

// awaitEnd waits for ctx to end, but not for ever: a test that fails is to fail, not to hang.
func awaitEnd(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(24 * time.Hour):
	}
}
