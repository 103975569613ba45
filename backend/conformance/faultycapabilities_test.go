package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aetomala/worklease/backend"
)

func (f *faulty) RenewBatch(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error) {
	if !f.has("a done context does not stop a batch") {
		if err := f.done(ctx, "renew batch"); err != nil {
			return nil, err
		}
	}
	ctx = context.WithoutCancel(ctx)
	byWorkID := func(a, b backend.LeaseRecord) int { return strings.Compare(a.WorkID, b.WorkID) }
	if f.has("verdicts are in the order of the work IDs") {
		records = slices.SortedFunc(slices.Values(records), byWorkID)
	}
	if f.has("a batch sorts the caller's records") {
		slices.SortFunc(records, byWorkID)
	}
	var verdicts []error
	if f.has("no records are one") && len(records) == 0 {
		verdicts = append(verdicts, backend.ErrFenced)
	}
	for i, record := range records {
		err := f.renewOne(ctx, record, ttl)
		switch {
		case f.has("a batch fails with one of its leases") && err != nil:
			return nil, fmt.Errorf("faulty: renew batch: %w", errors.New("one of them"))
		case f.has("the second of two equal records is busy") && slices.Contains(records[:i], record):
			err = backend.ErrBusy
		case f.has("two batches deadlock") && i > 0 && records[0].WorkID > records[i].WorkID && len(records) == 50:
			return nil, errors.New("faulty: renew batch: deadlock")
		case f.has("a batch ends at its first refusal") && i > 0 && verdicts[i-1] != nil:
			err = verdicts[i-1]
		case f.has("a batch renews the first 100") && i >= 100:
			err = backend.ErrBusy
		}
		verdicts = append(verdicts, err)
	}
	return verdicts, nil
}

func (f *faulty) renewOne(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	f.mu.Lock()
	r := f.rows[f.key(record.WorkID)]
	f.mu.Unlock()
	if f.has("a batch compares no token") {
		record.FencingToken = r.token
	}
	if f.has("a batch compares holders without case") && strings.EqualFold(record.HolderID, r.holderID) {
		record.HolderID = r.holderID
	}
	return f.matched(ctx, "renew", record, func(r *faultyRow, now time.Time) error {
		if over := !now.Before(r.expiresAt) && !f.has("a batch revives"); over || r.exit != backend.ExitNone {
			return backend.ErrLeaseExpired
		}
		if f.has("a batch is an update") {
			r.updatedAt = now
		}
		r.expiresAt = now.Add(ttl)
		return nil
	})
}

func (f *faulty) Free(ctx context.Context, workIDs []string) ([]string, error) {
	if err := f.done(ctx, "free"); err != nil && !f.has("a done context does not stop a look") {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var free []string
	now := time.Now()
	for _, workID := range workIDs {
		r, found := f.rows[f.key(workID)]
		if f.has("a look folds case") {
			for other, row := range f.rows {
				if strings.EqualFold(other, workID) && !found {
					r, found = row, true
				}
			}
		}
		isFree := !found || !now.Before(r.expiresAt)
		switch {
		case f.has("a look misses work without a row") && !found,
			f.has("a look misses the lapsed") && r.exit == backend.ExitNone && found:
			isFree = false
		case f.has("a look takes declared for free") && r.exit != backend.ExitNone:
			isFree = true
		}
		if f.has("a look acquires") && isFree {
			r.expiresAt = now.Add(hour)
			f.rows[workID] = r
		}
		if isFree && !(f.has("a look tells once") && slices.Contains(free, workID)) {
			free = append(free, workID)
		}
	}
	if f.has("a look sorts") {
		slices.Sort(free)
	}
	return free, nil
}

func (f *faulty) AcquireRead(ctx context.Context, workID, holderID string, ttl time.Duration) (record backend.LeaseRecord, found backend.Checkpoint, err error) {
	f.mu.Lock()
	r := f.rows[f.key(workID)]
	if f.has("AcquireRead takes held leases") && !r.expiresAt.IsZero() {
		r.expiresAt = time.Now()
		f.rows[f.key(workID)] = r
	}
	f.mu.Unlock()
	record, err = f.Acquire(ctx, workID, holderID, ttl)
	if err != nil {
		return backend.LeaseRecord{}, found, err
	}
	if f.has("AcquireRead reads in a second step") {
		stall()
		f.mu.Lock()
		defer f.mu.Unlock()
		r := f.rows[f.key(workID)]
		return record, backend.Checkpoint{State: r.state, PrevExit: r.exit, PrevHolderID: r.holderID}, nil
	}
	if found, err = f.ReadCheckpoint(ctx, record); err != nil {
		return record, found, err
	}
	if f.has("AcquireRead reads what was before") {
		found.PrevExit, found.PrevHolderID = r.prevExit, r.prevHolderID
	}
	if f.has("AcquireRead returns the stored slice") {
		f.mu.Lock()
		defer f.mu.Unlock()
		found.State = f.rows[f.key(workID)].state
	}
	if f.has("AcquireRead loses zero bytes") {
		found.State = bytes.TrimLeft(found.State, "\x00")
	}
	return record, found, nil
}

func (f *faulty) CheckpointRelease(ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
	if !mode.Declarable() && !f.has("CheckpointRelease takes any mode") {
		return fmt.Errorf("%w: %v", backend.ErrInvalidExitMode, mode)
	}
	return f.matched(ctx, "final", record, func(r *faultyRow, now time.Time) error {
		released := r.exit != backend.ExitNone && !f.has("CheckpointRelease replaces the first")
		lapsed := r.exit == backend.ExitNone && !now.Before(r.expiresAt) && f.has("CheckpointRelease refuses the lapsed")
		if released || lapsed {
			if f.has("CheckpointRelease saves when it refuses") {
				r.state = bytes.Clone(state)
				f.rows[f.key(record.WorkID)] = *r
			}
			return backend.ErrLeaseExpired
		}
		switch {
		case f.has("CheckpointRelease does not save"):
		case f.has("CheckpointRelease keeps the slice"):
			r.state = state
		case len(state) > 0:
			r.state = bytes.Clone(state)
		case !f.has("CheckpointRelease keeps the state for none"):
			r.state = nil
		}
		if f.has("CheckpointRelease does not release") {
			return nil
		}
		r.exit, r.expiresAt, r.updatedAt = mode, now, now
		if !f.has("CheckpointRelease wakes nobody") {
			f.wake(record.WorkID)
		}
		return nil
	})
}

func (f *faulty) ReleaseAfter(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode, delay time.Duration) error {
	if delay <= 0 && !f.has("a delay of none leaves the lease") || f.has("the delay is none") {
		return f.Release(ctx, record, mode)
	}
	if !mode.Declarable() && !f.has("ReleaseAfter takes any mode") {
		return fmt.Errorf("%w: %v", backend.ErrInvalidExitMode, mode)
	}
	return f.matched(ctx, "release after", record, func(r *faultyRow, now time.Time) error {
		if r.exit != backend.ExitNone || !now.Before(r.expiresAt) {
			return backend.ErrLeaseExpired
		}
		r.updatedAt = now
		if !f.has("the exit comes with the expiry") && !f.has("the exit of a delayed release is lost") {
			r.exit = mode
		}
		if f.has("the delay is half") {
			delay /= 2
		}
		expires := now.Add(delay)
		if !(f.has("the delay never outlasts the lease") && expires.After(r.expiresAt)) && delay > 0 {
			r.expiresAt = expires
		}
		if f.has("the exit of a delayed release is lost") {
			r.exit = backend.ExitFinished
		}
		return nil
	})
}

func (f *faulty) Wake(workID string) (woken <-chan struct{}, stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiters == nil {
		f.waiters = make(map[string][]chan struct{})
	}
	channel := make(chan struct{}, 1)
	f.waiters[workID] = append(f.waiters[workID], channel)
	return channel, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		waiting := slices.Contains(f.waiters[workID], channel)
		if f.has("stop does not stop") {
			return
		}
		f.waiters[workID] = slices.DeleteFunc(f.waiters[workID], func(c chan struct{}) bool { return c == channel })
		if f.has("stop closes the channel") && waiting {
			close(channel)
		}
	}
}

// wake is called with f locked.
func (f *faulty) wake(workID string) {
	for i, channel := range f.waiters[workID] {
		select {
		case channel <- struct{}{}:
		default:
		}
		if f.has("one waiter is told") && i == 0 {
			break
		}
	}
	if f.has("a waiter is told once") {
		f.waiters[workID] = nil
	}
}

// unsupporting is a wrapper with all capabilities, whatever its store has.
type unsupporting struct{ backend.Backend }

func (unsupporting) RenewBatch(context.Context, []backend.LeaseRecord, time.Duration) ([]error, error) {
	return nil, errors.ErrUnsupported
}

func (unsupporting) Free(context.Context, []string) ([]string, error) {
	return nil, errors.ErrUnsupported
}

func (unsupporting) AcquireRead(context.Context, string, string, time.Duration) (record backend.LeaseRecord, found backend.Checkpoint, err error) {
	return record, found, errors.ErrUnsupported
}

func (unsupporting) CheckpointRelease(context.Context, backend.LeaseRecord, []byte, backend.ExitMode) error {
	return errors.ErrUnsupported
}

func (unsupporting) ReleaseAfter(context.Context, backend.LeaseRecord, backend.ExitMode, time.Duration) error {
	return errors.ErrUnsupported
}

func (unsupporting) Wake(string) (woken <-chan struct{}, stop func()) { return nil, func() {} }
