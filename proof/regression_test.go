package proof

import (
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/model"
)

// regressions are sequences that a store, or one with a fault put into it, once failed, as rapid shrank
// them. A new one is pasted from the output of a failed test.
var regressions = map[string][]model.Op{
	"at its expiry instant a lease is free": {
		{Kind: model.Acquire, WorkID: "W", HolderID: "h", TTL: time.Minute},
		{Kind: model.Advance, By: time.Minute},
		{Kind: model.Acquire, WorkID: "W", HolderID: "h", TTL: time.Minute},
	},
	"a released lease stays released when the clock is set back": {
		{Kind: model.Acquire, WorkID: "w", HolderID: "h", TTL: time.Minute},
		{Kind: model.Release, WorkID: "w", HolderID: "h", Token: 1, Mode: backend.ExitFinished},
		{Kind: model.Advance, By: -time.Microsecond},
		{Kind: model.Renew, WorkID: "w", HolderID: "h", Token: 1, TTL: time.Minute},
	},
	"the zero token reads nothing": {
		{Kind: model.Acquire, WorkID: "w", HolderID: "h", TTL: time.Minute},
		{Kind: model.ReadCheckpoint, WorkID: "w", HolderID: "h"},
	},
	"holder IDs that differ in case are two": {
		{Kind: model.Acquire, WorkID: "w", HolderID: "h", TTL: time.Minute},
		{Kind: model.Renew, WorkID: "w", HolderID: "H", Token: 1, TTL: time.Minute},
	},
	"a retention is over an instant after its end, and counts from the expiry": {
		{Kind: model.Acquire, WorkID: "w", HolderID: "h", TTL: time.Minute},
		{Kind: model.Advance, By: time.Minute},
		{Kind: model.Sweep, IncludeExpired: true},
		{Kind: model.Advance, By: time.Microsecond},
		{Kind: model.Sweep, IncludeExpired: true},
	},
	"a renewal is no update": {
		{Kind: model.Acquire, WorkID: "w", HolderID: "h", TTL: time.Minute},
		{Kind: model.Advance, By: time.Second},
		{Kind: model.Renew, WorkID: "w", HolderID: "h", Token: 1, TTL: time.Minute},
	},
	"a new tenure has declared nothing, and knows what the last one did": {
		{Kind: model.Acquire, WorkID: "w", HolderID: "h", TTL: time.Minute},
		{Kind: model.Release, WorkID: "w", HolderID: "h", Token: 1, Mode: backend.ExitFinished},
		{Kind: model.Acquire, WorkID: "w", HolderID: "h", TTL: time.Minute},
		{Kind: model.ReadCheckpoint, WorkID: "w", HolderID: "h", Token: 2},
	},
	"what was read is the reader's to change": {
		{Kind: model.Acquire, WorkID: "w", HolderID: "h", TTL: time.Minute},
		{Kind: model.Checkpoint, WorkID: "w", HolderID: "h", Token: 1, TTL: time.Minute, State: []byte("s")},
		{Kind: model.ReadCheckpoint, WorkID: "w", HolderID: "h", Token: 1},
		{Kind: model.ReadCheckpoint, WorkID: "w", HolderID: "h", Token: 1},
	},
	"a checkpoint does not revive what was released": {
		{Kind: model.Acquire, WorkID: "w", HolderID: "h", TTL: time.Minute},
		{Kind: model.Release, WorkID: "w", HolderID: "h", Token: 1, Mode: backend.ExitFinished},
		{Kind: model.Checkpoint, WorkID: "w", HolderID: "h", Token: 1, TTL: time.Minute, State: []byte("s")},
	},
	"a state of no bytes is no state": {
		{Kind: model.Acquire, WorkID: "w", HolderID: "h", TTL: time.Minute},
		{Kind: model.Checkpoint, WorkID: "w", HolderID: "h", Token: 1, State: []byte("")},
		{Kind: model.ReadCheckpoint, WorkID: "w", HolderID: "h", Token: 1},
	},
	"a TTL between two microseconds ends at the later one": {
		{Kind: model.Acquire, WorkID: "w", HolderID: "h", TTL: time.Millisecond + 1},
		{Kind: model.Advance, By: time.Millisecond},
		{Kind: model.Renew, WorkID: "w", HolderID: "h", Token: 1, TTL: 90*time.Second - 1},
	},
	"a lapsed lease is revived, its work forgotten, and tokens go on": {
		{Kind: model.Acquire, WorkID: "w", HolderID: "h", TTL: time.Second},
		{Kind: model.Advance, By: time.Hour},
		{Kind: model.Checkpoint, WorkID: "w", HolderID: "h", Token: 1, TTL: time.Minute, State: []byte("s")},
		{Kind: model.Acquire, WorkID: "w", HolderID: "H", TTL: time.Minute},
		{Kind: model.Forget, WorkID: "w", HolderID: "h", Token: 1},
		{Kind: model.Acquire, WorkID: "w", HolderID: "h", TTL: time.Minute},
		{Kind: model.Forget, WorkID: "w", HolderID: "h", Token: 1},
	},
}

func TestRegressions(t *testing.T) {
	worlds := map[string]world{
		"memory":          newMemoryWorld(),
		"PostgreSQL, pq":  newStoppedWorld(t, "pq"),
		"PostgreSQL, pgx": newStoppedWorld(t, "pgx"),
	}
	for name, ops := range regressions {
		t.Run(name, func(t *testing.T) {
			for store, world := range worlds {
				if err := replay(t.Context(), world, ops); err != nil {
					t.Errorf("%s: %v", store, err)
				}
			}
		})
	}
}
