// Package memory keeps leases in the memory of one process. It follows every rule of
// [backend.Backend], which makes it the store for tests, for examples, and for programs that run
// only once; two processes never share it, and nothing survives the process.
package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aetomala/worklease/backend"
)

// Backend is a store in memory, with all optional capabilities but [backend.Transactional]. The zero
// Backend is empty and ready to use. It is safe for concurrent use, and must not be copied after first
// use.
type Backend struct {
	clock  Clock // nil: the machine's
	tokens atomic.Uint64
	shards [shardCount]shard
}

// Locks are spread over shards, so that work IDs rarely meet and a Sweep never holds more than a
// small part of the store.
const shardCount = 64

type shard struct {
	mu      sync.Mutex
	rows    map[string]*row
	waiters map[string]waiters // by work ID
}

type row struct {
	holderID     string
	token        uint64
	expiresAt    time.Time
	updatedAt    time.Time // last acquire, checkpoint or release
	state        []byte    // never written to once it is here, so that it can be copied without the lock
	exit         backend.ExitMode
	prevExit     backend.ExitMode
	prevHolderID string
}

var (
	seed          = maphash.MakeSeed()
	errNilContext = errors.New("nil context")
)

// Clock is where a store reads the time.
type Clock interface {
	// Now is called with a part of the store locked: it must return at once and must not call the
	// store. It is called from many goroutines.
	Now() time.Time
}

// Option configures a Backend.
type Option func(*Backend)

// WithClock makes the store read the time from c instead of from the machine. A nil c is ignored.
func WithClock(c Clock) Option {
	return func(b *Backend) {
		if c != nil {
			b.clock = c
		}
	}
}

// New returns an empty store. Nil options are ignored.
func New(opts ...Option) *Backend {
	b := new(Backend)
	for _, opt := range opts {
		if opt != nil {
			opt(b)
		}
	}
	return b
}

// Acquire implements [backend.Backend]. Tokens come from one counter for each Backend, which only a
// successful Acquire advances.
func (b *Backend) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	record, _, err := b.acquire(ctx, "acquire", workID, holderID, ttl)
	return record, err
}

// acquire also returns what the new holder reads. The state in it is the store's.
func (b *Backend) acquire(ctx context.Context, op, workID, holderID string, ttl time.Duration) (record backend.LeaseRecord, found backend.Checkpoint, err error) {
	s := b.shard(workID)
	now, err := b.enter(ctx, op, s)
	if err != nil {
		return record, found, err
	}
	defer s.mu.Unlock()

	r := s.rows[workID]
	switch {
	case r == nil:
		r = new(row)
		if s.rows == nil {
			s.rows = make(map[string]*row)
		}
		s.rows[workID] = r
	case now.Before(r.expiresAt):
		return record, found, &backend.HeldError{WorkID: workID, HolderID: r.holderID, ExpiresAt: r.expiresAt.Round(0), Exit: r.exit}
	case r.exit == backend.ExitNone:
		r.prevExit, r.prevHolderID = backend.ExitExpired, r.holderID
	default:
		r.prevExit, r.prevHolderID = r.exit, r.holderID
	}
	r.holderID, r.exit = holderID, backend.ExitNone
	r.token = b.tokens.Add(1)
	r.expiresAt, r.updatedAt = now.Add(ttl), now
	return backend.LeaseRecord{
		WorkID:       workID,
		HolderID:     holderID,
		FencingToken: r.token,
		ExpiresAt:    r.expiresAt.Round(0),
	}, r.checkpoint(), nil
}

// Checkpoint implements [backend.Backend].
func (b *Backend) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	stored := copyOf(state)
	return b.matched(ctx, "checkpoint", record, func(_ *shard, r *row, now time.Time) error {
		if r.exit != backend.ExitNone {
			return backend.ErrLeaseExpired
		}
		r.state = stored
		r.expiresAt, r.updatedAt = now.Add(ttl), now
		return nil
	})
}

// Renew implements [backend.Backend].
func (b *Backend) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	return b.renew(ctx, "renew", record, ttl)
}

func (b *Backend) renew(ctx context.Context, op string, record backend.LeaseRecord, ttl time.Duration) error {
	return b.matched(ctx, op, record, func(_ *shard, r *row, now time.Time) error {
		if r.over(now) {
			return backend.ErrLeaseExpired
		}
		r.expiresAt = now.Add(ttl)
		return nil
	})
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	return b.release(ctx, "release", record, mode, 0)
}

// release ends the tenure now, and the lease after delay.
func (b *Backend) release(ctx context.Context, op string, record backend.LeaseRecord, mode backend.ExitMode, delay time.Duration) error {
	if !mode.Declarable() {
		return invalidExit(mode)
	}
	return b.matched(ctx, op, record, func(s *shard, r *row, now time.Time) error {
		if r.over(now) {
			return backend.ErrLeaseExpired
		}
		r.exit = mode
		r.expiresAt, r.updatedAt = now.Add(max(delay, 0)), now
		if delay <= 0 {
			s.wake(record.WorkID)
		}
		return nil
	})
}

func invalidExit(mode backend.ExitMode) error {
	return fmt.Errorf("%w: %v", backend.ErrInvalidExitMode, mode)
}

// ReadCheckpoint implements [backend.Backend].
func (b *Backend) ReadCheckpoint(ctx context.Context, record backend.LeaseRecord) (backend.Checkpoint, error) {
	var found backend.Checkpoint
	err := b.matched(ctx, "read checkpoint", record, func(_ *shard, r *row, _ time.Time) error {
		found = r.checkpoint()
		return nil
	})
	found.State = copyOf(found.State)
	return found, err
}

// Forget implements [backend.Backend].
func (b *Backend) Forget(ctx context.Context, record backend.LeaseRecord) error {
	return b.matched(ctx, "forget", record, func(s *shard, _ *row, _ time.Time) error {
		delete(s.rows, record.WorkID)
		s.wake(record.WorkID)
		return nil
	})
}

// Sweep implements [backend.Backend]. It locks one part of the store at a time, and looks at ctx
// before each.
func (b *Backend) Sweep(ctx context.Context, opts backend.SweepOptions) (int64, error) {
	var deleted int64
	for i := range b.shards {
		s := &b.shards[i]
		now, err := b.enter(ctx, "sweep", s)
		if err != nil {
			return deleted, err
		}
		for workID, r := range s.rows {
			if r.selected(opts, now) {
				delete(s.rows, workID)
				s.wake(workID)
				deleted++
			}
		}
		s.mu.Unlock()
	}
	return deleted, nil
}

// matched runs f on the row that record matches, with the row's shard locked. Without such a row it
// returns ErrFenced.
func (b *Backend) matched(ctx context.Context, op string, record backend.LeaseRecord, f func(*shard, *row, time.Time) error) error {
	s := b.shard(record.WorkID)
	now, err := b.enter(ctx, op, s)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()

	r := s.rows[record.WorkID]
	if r == nil || r.token != record.FencingToken || r.holderID != record.HolderID {
		return backend.ErrFenced
	}
	return f(s, r, now)
}

func (b *Backend) shard(workID string) *shard {
	return &b.shards[maphash.String(seed, workID)%shardCount]
}

// enter locks s and reads the clock, in this order, so that no time is older than what the shard
// holds. With an error, s is not locked.
func (b *Backend) enter(ctx context.Context, op string, s *shard) (now time.Time, err error) {
	if ctx == nil {
		return now, look(ctx, op)
	}
	s.mu.Lock()
	entered := false
	defer func() {
		if !entered { // also when the caller's clock or context panics
			s.mu.Unlock()
		}
	}()
	if err := look(ctx, op); err != nil {
		return now, err
	}
	if b.clock == nil {
		now = time.Now()
	} else {
		now = b.clock.Now()
	}
	entered = true
	return now, nil
}

// look returns why a call with ctx is not made, if there is a reason.
func look(ctx context.Context, op string) error {
	err := errNilContext
	if ctx != nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("memory: %s: %w", op, err)
	}
	return nil
}

// over reports whether the tenure has ended: by a declared exit, which stands even if the clock is set
// back, or by its expiry. Whether somebody else may have the lease, or Sweep the row, is another
// question: that the expiry alone decides.
func (r *row) over(now time.Time) bool {
	return r.exit != backend.ExitNone || !now.Before(r.expiresAt)
}

// checkpoint returns what the holder reads. The state in it is to be copied once the lock is open.
func (r *row) checkpoint() backend.Checkpoint {
	return backend.Checkpoint{State: r.state, PrevExit: r.prevExit, PrevHolderID: r.prevHolderID}
}

// selected reports whether a Sweep with opts deletes r.
func (r *row) selected(opts backend.SweepOptions, now time.Time) bool {
	if now.Before(r.expiresAt) {
		return false
	}
	last := r.updatedAt
	switch r.exit {
	case backend.ExitRetired:
	case backend.ExitNone:
		if !opts.IncludeExpired {
			return false
		}
		if r.expiresAt.After(last) {
			last = r.expiresAt
		}
	default:
		return false
	}
	return now.Sub(last) > opts.Retention
}

// copyOf returns a copy of state, or nil if it is empty.
func copyOf(state []byte) []byte {
	if len(state) == 0 {
		return nil
	}
	return append([]byte(nil), state...)
}
