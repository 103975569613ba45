package model

import (
	"context"
	"maps"
	"time"

	"github.com/aetomala/worklease/backend"
)

// Store is the state of the model. The zero Store is empty, and its clock stands at the zero time.
type Store struct {
	Now  time.Time
	Rows map[string]Row
	// Given has the records of all acquisitions. The token of each is its rank, from 1.
	Given []backend.LeaseRecord
	// Resolution is the unit in which the store counts. It rounds a TTL and a retention up to the next
	// one, so that no lease ends early. Zero means nanoseconds.
	Resolution time.Duration
}

// Result is what a store answers. Its error is nil, a sentinel of package backend, a
// [*backend.HeldError], or that of a context.
type Result struct {
	Err     error
	Record  backend.LeaseRecord // of Acquire
	Found   backend.Checkpoint  // of ReadCheckpoint
	Deleted int64               // of Sweep
}

// At returns a copy of s whose clock stands at now.
func (s Store) At(now time.Time) Store {
	s.Now, s.Rows = now, maps.Clone(s.Rows)
	return s
}

// Unit is the smallest time that the store can tell apart.
func (s *Store) Unit() time.Duration { return max(s.Resolution, time.Nanosecond) }

// Apply makes one step.
func (s *Store) Apply(op Op) Result {
	if op.Done && (op.Kind != Release || op.Mode.Declarable()) {
		return Result{Err: context.Canceled}
	}
	var (
		row    = s.Rows[op.WorkID]
		record = op.Record()
		ttl    = s.round(op.TTL)
		next   = row
		answer Result
	)
	switch op.Kind {
	case Advance:
		s.Now = s.Now.Add(op.By)
		return answer
	case Sweep:
		answer.Deleted = s.sweep(backend.SweepOptions{Retention: s.round(op.Retention), IncludeExpired: op.IncludeExpired})
		return answer
	case Acquire:
		next, answer = s.acquire(row, op, ttl)
	case Checkpoint:
		next, answer.Err = row.Checkpoint(s.Now, record, string(op.State), ttl)
	case Renew:
		next, answer.Err = row.Renew(s.Now, record, ttl)
	case Release:
		next, answer.Err = row.Release(s.Now, record, op.Mode)
	case ReadCheckpoint:
		answer.Found, answer.Err = row.ReadCheckpoint(record)
	case Forget:
		next, answer.Err = row.Forget(record)
	}
	s.put(op.WorkID, next)
	return answer
}

func (s *Store) acquire(row Row, op Op, ttl time.Duration) (Row, Result) {
	token := uint64(len(s.Given) + 1)
	next, err := row.Acquire(s.Now, op.HolderID, token, ttl)
	if err != nil {
		return row, Result{Err: &backend.HeldError{WorkID: op.WorkID, HolderID: row.HolderID, ExpiresAt: row.ExpiresAt}}
	}
	record := backend.LeaseRecord{WorkID: op.WorkID, HolderID: op.HolderID, FencingToken: token, ExpiresAt: next.ExpiresAt}
	s.Given = append(s.Given[:len(s.Given):len(s.Given)], record)
	return next, Result{Record: record}
}

func (s *Store) sweep(opts backend.SweepOptions) (deleted int64) {
	for workID, row := range s.Rows {
		if row.Swept(s.Now, opts) {
			delete(s.Rows, workID)
			deleted++
		}
	}
	return deleted
}

func (s *Store) put(workID string, row Row) {
	if !row.Exists() {
		delete(s.Rows, workID)
		return
	}
	if s.Rows == nil {
		s.Rows = make(map[string]Row)
	}
	s.Rows[workID] = row
}

func (s *Store) round(d time.Duration) time.Duration {
	units := d / s.Unit()
	if d%s.Unit() > 0 {
		units++
	}
	return units * s.Unit()
}
