package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/tenure"
)

// held is the lease of a run or of a [Lock]. It is a [worklease.Lease] for that one tenure, whose TTL can
// be changed: what an extension makes is a new token of the same tenure, which the context that the work
// has follows from then on.
type held struct {
	worklease.Lease // the first
	s               *Scheduler
	task            Task
	store           *store
	outer           *held // the run that this one is nested in
	slot            time.Time

	extending sync.Mutex // one at a time

	mu      sync.Mutex
	current worklease.Lease
	token   worklease.Token
	began   time.Time       // when the lease was surely ours
	parent  context.Context // of every renewal
	ctx     context.Context // the work's; nil before StartRenewal
	cancel  context.CancelCauseFunc
	values  *follower
	renewal *renewal
	over    bool // the work is: nothing is extended any more
}

// renewal is one StartRenewal.
type renewal struct {
	ctx  context.Context
	stop func()
	end  context.CancelFunc // of ctx
}

func (s *Scheduler) newHeld(ctx context.Context, task Task) (*held, error) {
	h := &held{s: s, task: task, slot: task.Slot, outer: heldBy(ctx)}
	h.store = &store{Backend: s.backend, releaser: s.releaser, reader: s.reader, saver: s.saver}
	lease, err := worklease.New(h.store, worklease.Config{TTL: task.AtMostFor, HolderID: s.cfg.HolderID, Observer: s.observer})
	if err != nil {
		return nil, err
	}
	h.Lease, h.current = lease, lease
	return h, nil
}

func (h *held) Acquire(ctx context.Context, workID string, opts ...worklease.AcquireOption) (worklease.Token, error) {
	token, err := h.Lease.Acquire(ctx, workID, opts...)
	if err == nil {
		// Counted from the answer, AtLeastFor is over no sooner than by the store's clock.
		h.token, h.began = token, time.Now()
	}
	return token, err
}

// AcquireRead takes both steps in one where the lease can: see package tenure.
func (h *held) AcquireRead(ctx context.Context, workID string, opts ...worklease.AcquireOption) (worklease.Token, worklease.Checkpoint, error) {
	one, ok := h.Lease.(tenure.AcquireReader)
	if !ok {
		return worklease.Token{}, worklease.Checkpoint{}, errors.ErrUnsupported
	}
	token, prior, err := one.AcquireRead(ctx, workID, opts...)
	if err == nil {
		h.token, h.began = token, time.Now()
	}
	return token, prior, err
}

// CheckpointRelease takes both steps in one where the lease of the moment can.
func (h *held) CheckpointRelease(ctx context.Context, _ worklease.Token, state []byte, mode worklease.ExitMode) error {
	lease, token := h.now()
	one, ok := lease.(tenure.CheckpointReleaser)
	if !ok {
		return errors.ErrUnsupported
	}
	return one.CheckpointRelease(ctx, token, state, mode)
}

// now returns what the calls of this moment are to be made with.
func (h *held) now() (worklease.Lease, worklease.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current, h.token
}

func (h *held) Checkpoint(ctx context.Context, _ worklease.Token, state []byte) error {
	lease, token := h.now()
	return lease.Checkpoint(ctx, token, state)
}

func (h *held) Release(ctx context.Context, _ worklease.Token, mode worklease.ExitMode) error {
	lease, token := h.now()
	return lease.Release(ctx, token, mode)
}

// StartRenewal returns a context that lasts through extensions.
func (h *held) StartRenewal(ctx context.Context, token worklease.Token, _ ...worklease.RenewalOption) (context.Context, func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parent = ctx
	h.values = &follower{Context: context.WithoutCancel(ctx)}
	h.ctx, h.cancel = context.WithCancelCause(h.values)
	h.follow(h.current, token)
	return h.ctx, h.stop
}

// follow makes the context of the work that of a renewal of token. Called with mu locked.
func (h *held) follow(lease worklease.Lease, token worklease.Token) {
	parent, end := context.WithCancel(h.parent)
	r := &renewal{end: end}
	r.ctx, r.stop = lease.StartRenewal(parent, token)
	if h.task.NoKeepAlive {
		r.stop()
	}
	before := h.renewal
	h.renewal = r
	h.values.current.Store(&r.ctx)
	if before != nil {
		before.stop()
		before.end()
	}
	if r.ctx.Err() != nil {
		h.cancel(context.Cause(r.ctx))
	}
	context.AfterFunc(r.ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		r.end()
		if h.renewal == r {
			h.cancel(context.Cause(r.ctx))
		}
	})
}

func (h *held) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.renewal.stop()
	if cause := context.Cause(h.renewal.ctx); cause != nil {
		h.cancel(cause) // AfterFunc may take a moment
	}
}

// alive reports whether the lease is surely held, by work that goes on.
func (h *held) alive() bool {
	h.mu.Lock()
	over := h.over
	h.mu.Unlock()
	_, ok := worklease.LeaseWindow(h.ctx)
	return ok && !over && h.ctx.Err() == nil
}

func (h *held) extend(ctx context.Context, atMost, atLeast time.Duration) error {
	task := Task{Name: h.task.Name, AtMostFor: atMost, AtLeastFor: atLeast}
	if err := h.s.check(task); err != nil {
		return err
	}
	h.extending.Lock()
	defer h.extending.Unlock()
	_, token := h.now()
	if !h.alive() {
		return failed("extend", token, fmt.Errorf("%w: %w", worklease.ErrLeaseExpired, worklease.ErrLeaseWindowExhausted))
	}
	ttl, takeBack := h.store.give(atMost)
	e := &extension{store: h.store, record: recordOf(token)}
	lease, err := worklease.New(e, worklease.Config{TTL: ttl, HolderID: h.s.cfg.HolderID, Observer: extending{h.s.observer, token}})
	if err != nil {
		takeBack()
		return err
	}
	next, err := lease.Acquire(ctx, h.task.Name)
	if err != nil {
		takeBack()
		if e.err != nil {
			err = e.err
		}
		h.lose(err)
		return failed("extend", token, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over { // a renewal would keep what nobody gives back
		return failed("extend", token, fmt.Errorf("%w: the work is over", worklease.ErrLeaseExpired))
	}
	e.taken = true
	h.current, h.token = lease, next
	h.follow(lease, next)
	h.store.keepUntil(time.Now().Add(atLeast))
	return nil
}

// lose ends the work's context if err says that the lease is gone.
func (h *held) lose(err error) {
	if cause := lossIn(err); cause != nil {
		h.cancel(cause)
	}
}

func recordOf(token worklease.Token) backend.LeaseRecord {
	return backend.LeaseRecord{
		WorkID: token.WorkID(), HolderID: token.HolderID(), FencingToken: token.FencingToken(), ExpiresAt: token.ExpiresAt(),
	}
}

// follower has the values of the renewal's context of the moment, so that [worklease.LeaseWindow] finds
// the window there is. It never ends.
type follower struct {
	context.Context
	current atomic.Pointer[context.Context]
}

func (f *follower) Value(key any) any {
	if ctx := f.current.Load(); ctx != nil {
		return (*ctx).Value(key)
	}
	return f.Context.Value(key)
}
