package model

import (
	"maps"
	"slices"
	"time"

	"github.com/aetomala/worklease/backend"
)

// Choose picks a number from 0 to n-1. Zero is the plainest choice, to which a failing sequence is
// shrunk. It may be random, drawn by a test tool, or read from bytes.
type Choose func(n int) int

// The names are few, so that operations meet, and such as only a comparison of bytes tells apart.
var (
	workIDs   = []string{"w", "W", "w ", "ẃ"}
	holderIDs = []string{"h", "H", "h ", "ḣ"}
)

var (
	ttls = []time.Duration{
		time.Minute, time.Second, time.Hour, time.Minute, time.Hour, 0, -1, -time.Second, 1, time.Microsecond, time.Millisecond + 1, 90*time.Second - 1, -time.Hour,
	}
	retentions = []time.Duration{time.Minute, time.Second, time.Hour, 0, -1, -time.Minute, 1, time.Millisecond - 1}
	steps      = []time.Duration{time.Second, time.Minute, time.Hour, time.Millisecond, 0, 40 * time.Second, -time.Second, -time.Minute}
)

// Kinds of operations, the more often the more there is to try.
var kinds = []Kind{
	Acquire, Checkpoint, Advance, Renew, Release, ReadCheckpoint, Forget, Sweep,
	Acquire, Checkpoint, Advance, Renew, Release, ReadCheckpoint, Acquire, Advance,
}

// Generate makes an operation that is worth trying on s.
func Generate(s *Store, choose Choose) Op {
	return generate(pick(choose, kinds), s, choose)
}

func generate(kind Kind, s *Store, choose Choose) Op {
	op := Op{Kind: kind}
	switch kind {
	case Advance:
		op.By = step(s, choose)
		return op
	case Sweep:
		op.Retention = retention(s, choose)
		op.IncludeExpired = choose(2) == 1
	case Acquire:
		op.WorkID, op.HolderID = pick(choose, workIDs), pick(choose, holderIDs)
		if len(s.Rows) > 0 && choose(2) == 1 {
			op.WorkID = s.Given[aRow(s, choose).Token-1].WorkID
		}
		op.TTL = pick(choose, ttls)
	default:
		record := record(s, choose)
		op.WorkID, op.HolderID, op.Token = record.WorkID, record.HolderID, record.FencingToken
	}
	switch kind {
	case Checkpoint:
		op.TTL = pick(choose, ttls)
		op.State = pick(choose, [][]byte{[]byte("s"), nil, {}, {0}, []byte("\xff\x00'\\")})
	case Renew:
		op.TTL = pick(choose, ttls)
	case Release:
		op.Mode = pick(choose, []backend.ExitMode{
			backend.ExitFinished, backend.ExitAbandoned, backend.ExitRetired,
			backend.ExitFinished, backend.ExitAbandoned, backend.ExitRetired,
			backend.ExitNone, backend.ExitExpired, 9,
		})
	}
	op.Done = choose(32) == 31
	return op
}

// record is mostly that of a tenure that goes on; often of one that is over; and now and then a mixture
// of several, or one with a token that was never given out.
func record(s *Store, choose Choose) backend.LeaseRecord {
	if len(s.Given) == 0 {
		return backend.LeaseRecord{WorkID: pick(choose, workIDs), HolderID: pick(choose, holderIDs)}
	}
	tenure := func() backend.LeaseRecord {
		return s.Given[len(s.Given)-1-choose(len(s.Given))]
	}
	record := tenure()
	if len(s.Rows) > 0 && choose(4) < 3 {
		record = s.Given[aRow(s, choose).Token-1]
	}
	switch choose(12) {
	case 9:
		record.HolderID = pick(choose, holderIDs)
	case 10:
		record.WorkID = pick(choose, workIDs)
	case 11:
		record.FencingToken = []uint64{tenure().FencingToken, 0, uint64(len(s.Given)) + 1, uint64(len(s.Given)) + 2}[choose(4)]
	}
	return record
}

// step is an arbitrary one, or one to an instant at which something changes, or to just before or after.
func step(s *Store, choose Choose) time.Duration {
	if len(s.Rows) == 0 || choose(2) == 0 {
		return pick(choose, steps)
	}
	row := aRow(s, choose)
	if choose(2) == 0 {
		return row.ExpiresAt.Sub(s.Now) + nudge(s, choose)
	}
	return row.LastUpdate().Add(pick(choose, retentions)).Sub(s.Now).Truncate(s.Unit()) + nudge(s, choose)
}

// retention is an arbitrary one, or how long ago the last update of a row is, or just more or less.
func retention(s *Store, choose Choose) time.Duration {
	if len(s.Rows) == 0 || choose(2) == 0 {
		return pick(choose, retentions)
	}
	return s.Now.Sub(aRow(s, choose).LastUpdate()) + nudge(s, choose)
}

func nudge(s *Store, choose Choose) time.Duration {
	return []time.Duration{0, s.Unit(), -s.Unit()}[choose(3)]
}

func aRow(s *Store, choose Choose) Row {
	return s.Rows[pick(choose, slices.Sorted(maps.Keys(s.Rows)))]
}

func pick[T any](choose Choose, from []T) T { return from[choose(len(from))] }
