package tenure_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/internal/tenuretest"
)

const (
	ttl    = tenuretest.TTL
	workID = "report"
)

var (
	errStore, errWork, errShutdown = tenuretest.ErrStore, tenuretest.ErrWork, tenuretest.ErrShutdown

	newStore   = tenuretest.NewStore
	renewFails = tenuretest.RenewFails
	awaitEnd   = tenuretest.AwaitEnd
)

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

func newLease(t *testing.T, b backend.Backend) worklease.Lease { return tenuretest.LeaseOf(t, b, "a") }

// takeOver makes another holder acquire what token holds, as after a pause longer than the TTL.
func takeOver(t *testing.T, s *faulty.Store, token worklease.Token) {
	tenuretest.TakeOver(t, s.Backend, token, time.Hour)
}
