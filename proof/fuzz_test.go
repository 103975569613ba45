package proof

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/internal/model"
)

// fuzzOperations reads the choices that make a sequence from bytes.
func fuzzOperations(f *testing.F, world world) {
	f.Add([]byte{})
	f.Add([]byte{1, 0, 0, 0, 0})
	// Acquire, Checkpoint, Release as retired, move to the release's instant, Sweep.
	f.Add([]byte{1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 1, 0, 1, 3, 0, 7, 1, 0, 0, 0, 0})
	// Acquire, move to the expiry, Acquire by another, and the first one's Renew.
	f.Add([]byte{1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 3, 1, 3, 0, 0, 0})
	f.Add([]byte(strings.Repeat("\x01\x02\x03\x04\x05\x06\x07\x00", 12)))
	f.Add([]byte("The quick brown fox jumps over the lazy dog, and the lease of the dog is fenced."))
	f.Fuzz(func(t *testing.T, data []byte) {
		data = data[:min(len(data), 4096)]
		config, err := world.restart(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		runner := model.NewRunner(config)
		choose := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			choice := int(data[0]) % n
			data = data[1:]
			return choice
		}
		for len(data) > 0 {
			op := model.Generate(runner.Model(), choose)
			if err := runner.Step(t.Context(), op); err != nil {
				t.Fatalf("%v\nthe steps were\n%s", err, runner.Trace())
			}
		}
	})
}

func FuzzOperationsInMemory(f *testing.F) { fuzzOperations(f, newMemoryWorld()) }

func FuzzOperationsInPostgreSQL(f *testing.F) { fuzzOperations(f, newStoppedWorld(f, "pgx")) }

// FuzzValues leads arbitrary IDs, states and durations through a lease's life on both stores. IDs are
// those that the root package lets through.
func FuzzValues(f *testing.F) {
	const century = int64(100 * 365 * 24 * time.Hour)
	f.Add("work", "holder", []byte("state"), int64(time.Minute), int64(time.Hour), int64(time.Minute))
	f.Add("", "", []byte(nil), int64(0), int64(0), int64(0))
	f.Add("w\x00", "h\xff", []byte{0}, int64(-1), int64(-1), int64(-1))
	f.Add(strings.Repeat("w", 1024), strings.Repeat("é", 512), []byte("\\x00'\""), int64(1), int64(1), int64(1))
	f.Add(strings.Repeat("w", 1025), "\u202e'; --", make([]byte, 70_000), int64(math.MaxInt64), int64(math.MinInt64), int64(math.MaxInt64))
	f.Add("$1", "%s\\", []byte("\xff\xfe"), int64(999), int64(1_000_001), int64(1_001))
	worlds := []world{newMemoryWorld(), newStoppedWorld(f, "pq"), newStoppedWorld(f, "pgx")}
	f.Fuzz(func(t *testing.T, workID, holderID string, state []byte, ttl, retention, by int64) {
		if !allowed(t, workID, holderID) {
			return
		}
		ops := life(workID, holderID, state, time.Duration(ttl%century), time.Duration(retention%century), time.Duration(by%century))
		for _, world := range worlds {
			if err := replay(t.Context(), world, ops); err != nil {
				t.Errorf("%T: %v", world, err)
			}
		}
	})
}

// allowed reports whether the root package lets the IDs through, and sees to it that it does so by its
// rule.
func allowed(t *testing.T, workID, holderID string) bool {
	t.Helper()
	lease, err := worklease.New(memory.New(), worklease.Config{TTL: time.Minute, HolderID: holderID})
	if ok := valid(holderID); ok != (err == nil) || !ok && !errors.Is(err, worklease.ErrConfigInvalid) {
		t.Fatalf("New with the holder ID %q: %v", holderID, err)
	}
	if err != nil {
		return false
	}
	_, err = lease.Acquire(t.Context(), workID)
	if ok := valid(workID); ok != (err == nil) {
		t.Fatalf("Acquire of the work ID %q: %v", workID, err)
	}
	return err == nil
}

func valid(id string) bool {
	return id != "" && len(id) <= 1024 && utf8.ValidString(id) && !strings.Contains(id, "\x00")
}

// life is that of two tenures of one work ID.
func life(workID, holderID string, state []byte, ttl, retention, by time.Duration) []model.Op {
	mine := model.Op{WorkID: workID, HolderID: holderID, Token: 1, TTL: ttl, State: state, Mode: backend.ExitRetired}
	next := mine
	next.HolderID, next.Token = "next", 2
	as := func(kind model.Kind, op model.Op) model.Op {
		op.Kind = kind
		return op
	}
	move, sweep := model.Op{Kind: model.Advance, By: by}, model.Op{Kind: model.Sweep, Retention: retention}
	all := sweep
	all.IncludeExpired = true
	return []model.Op{
		as(model.Acquire, mine), as(model.Acquire, next), as(model.ReadCheckpoint, mine), as(model.Renew, mine), move,
		as(model.Checkpoint, mine), as(model.ReadCheckpoint, mine), sweep, move,
		as(model.Acquire, next), as(model.Checkpoint, mine), as(model.ReadCheckpoint, next), as(model.Renew, next),
		as(model.Checkpoint, next), as(model.Release, next), as(model.Release, mine), move, all, move, sweep,
		as(model.Forget, mine), as(model.Forget, next), as(model.Acquire, mine),
	}
}
