package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/prompt"
)

// store is one run's way to the backend. It keeps the name taken for as long as the task says, and lets an
// extension give the lease more time than its renewals would. It does not unwrap: no call goes around it.
type store struct {
	backend.Backend
	releaser backend.DelayedReleaser
	reader   backend.AcquireReader      // nil: the backend has none
	saver    backend.CheckpointReleaser // nil: the backend has none

	mu       sync.Mutex
	freeAt   time.Time             // no Release takes effect before it
	least    time.Duration         // what a Renew gives at least
	inFlight map[time.Duration]int // Renews that are not answered, by what they give
	doubtful time.Duration         // the least that a Renew gives which ended without a verdict; zero: none did
}

// keepUntil sets the time before which the name is not to be free.
func (s *store) keepUntil(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freeAt = t
}

// give makes every Renew from now on give at least d. It returns how much of d can be relied upon, since a
// Renew that gives less may arrive yet. The function it returns takes that back.
func (s *store) give(d time.Duration) (sure time.Duration, takeBack func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.least
	s.least, sure = d, d
	for given := range s.inFlight {
		sure = min(sure, given)
	}
	if s.doubtful > 0 {
		sure = min(sure, s.doubtful)
	}
	return sure, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.least = before
	}
}

func (s *store) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	given := s.begin(ttl)
	verdict := false
	defer func() { s.end(given, verdict) }() // also when the store panics
	err := s.Backend.Renew(ctx, record, given)
	verdict = err == nil || prompt.IsAnswer(err)
	return err
}

func (s *store) begin(ttl time.Duration) (given time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	given = max(ttl, s.least)
	if s.inFlight == nil {
		s.inFlight = make(map[time.Duration]int)
	}
	s.inFlight[given]++
	return given
}

func (s *store) end(given time.Duration, verdict bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[given]--; s.inFlight[given] == 0 {
		delete(s.inFlight, given)
	}
	if !verdict && (s.doubtful == 0 || given < s.doubtful) {
		s.doubtful = given
	}
}

// Checkpoint gives as much as a Renew would.
func (s *store) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	s.mu.Lock()
	ttl = max(ttl, s.least)
	s.mu.Unlock()
	return s.Backend.Checkpoint(ctx, record, state, ttl)
}

// Release leaves the name taken until it may be free. The exit is recorded at once: nobody need wait.
func (s *store) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	delay := s.delay()
	if delay <= 0 {
		return s.Backend.Release(ctx, record, mode)
	}
	err := s.releaser.ReleaseAfter(ctx, record, mode, delay)
	if errors.Is(err, errors.ErrUnsupported) { // by what it wraps: nobody could know before
		return fmt.Errorf("%w: %w", ErrAtLeastForUnsupported, err)
	}
	return err
}

// delay is for how long the name must not be free yet.
func (s *store) delay() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freeAt.IsZero() {
		return 0
	}
	return time.Until(s.freeAt)
}

// AcquireRead implements [backend.AcquireReader] where the backend does.
func (s *store) AcquireRead(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
	if s.reader == nil {
		return backend.LeaseRecord{}, backend.Checkpoint{}, errors.ErrUnsupported
	}
	return s.reader.AcquireRead(ctx, workID, holderID, ttl)
}

// CheckpointRelease implements [backend.CheckpointReleaser] where the backend does. It would free the name at once,
// and so is left to those who can do otherwise while that must not be.
func (s *store) CheckpointRelease(ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
	if s.saver == nil || s.delay() > 0 {
		return errors.ErrUnsupported
	}
	return s.saver.CheckpointRelease(ctx, record, state, mode)
}

// extension is the store of a lease that goes on from another, with another TTL: to acquire it is to renew
// the one there is.
type extension struct {
	*store
	record backend.LeaseRecord
	err    error // of the Renew
	taken  bool
}

func (e *extension) Acquire(ctx context.Context, _, _ string, ttl time.Duration) (backend.LeaseRecord, error) {
	e.err = e.Renew(ctx, e.record, ttl)
	return e.record, e.err
}

// Release is not carried out for an extension that came too late: the run goes on to the end of the lease
// that it knows of.
func (e *extension) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	if !e.taken {
		return backend.ErrLeaseExpired
	}
	return e.store.Release(ctx, record, mode)
}

// extending is the observer of an extension: what looks like an Acquire is a Renew.
type extending struct {
	worklease.LeaseObserver
	token worklease.Token
}

func (o extending) OnAcquire(ctx context.Context, e worklease.AcquireEvent) {
	o.OnRenew(ctx, worklease.RenewEvent{Token: o.token, Duration: e.Duration, Attempt: 1, Err: e.Err})
}
