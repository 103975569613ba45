package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
)

// Ways to break the promises on purpose, to see that the check finds it.
const (
	sabotageUnfenced = "unfenced" // checkpoints are written without a look at the token, also after the loss
	sabotageBoastful = "boastful" // the holder counts on twice the TTL that the store gives
	sabotageLying    = "lying"    // every exit is recorded as abandoned
	sabotageTorn     = "torn"     // the effect is not in the checkpoint's transaction, though it should be
)

var sabotages = []string{sabotageUnfenced, sabotageBoastful, sabotageLying, sabotageTorn}

// sabotaged returns the store and the configuration of a worker with that defect, if there is one.
func sabotaged(defect string, store backend.Backend, db *sql.DB, config worklease.Config) (backend.Backend, worklease.Config) {
	switch defect {
	case sabotageUnfenced:
		return unfenced{store, db}, config
	case sabotageBoastful:
		config.TTL *= 2
		return halved{store}, config
	case sabotageLying:
		return lying{store}, config
	}
	return store, config
}

type unfenced struct {
	backend.Backend
	db *sql.DB
}

func (b unfenced) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, _ time.Duration) error {
	_, err := b.db.ExecContext(ctx, "UPDATE worklease_leases SET checkpoint = $2 WHERE work_id = $1", record.WorkID, state)
	return err
}

type halved struct{ backend.Backend }

func (b halved) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	return b.Backend.Acquire(ctx, workID, holderID, ttl/2)
}

func (b halved) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	return b.Backend.Checkpoint(ctx, record, state, ttl/2)
}

func (b halved) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	return b.Backend.Renew(ctx, record, ttl/2)
}

type lying struct{ backend.Backend }

func (b lying) Unwrap() backend.Backend { return b.Backend }

func (b lying) Release(ctx context.Context, record backend.LeaseRecord, _ backend.ExitMode) error {
	return b.Backend.Release(ctx, record, backend.ExitAbandoned)
}
