package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pause"
	"github.com/aetomala/worklease/proof/chaos/history"
)

// task is one work ID as one process sees it.
type task struct {
	*process
	assignment
	done bool // the last tenure found, or left, the work done for good
}

// tenure is the work of one tenure.
type tenure struct {
	*task
	ctx   context.Context
	token worklease.Token
	state history.State

	mu      sync.Mutex
	claimed time.Time // the deadline that was told last
}

var errGaveUp = errors.New("the work gives up, as it now and then does")

// run is the worker's WorkFn: steps, each with its effect and its checkpoint, until it is enough. Of a
// checkpoint that failed, nobody knows whether it was saved, or may be yet; so no other is tried after it,
// which it could overwrite.
func (t *task) run(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
	found, err := history.ParseState(string(prior.State))
	if err != nil {
		return nil, err
	}
	if found.Done {
		t.done = true
		return nil, worklease.ErrRetire
	}
	n := &tenure{task: t, ctx: ctx, token: token, state: history.State{Step: found.Step, Token: token.FencingToken()}}
	defer n.watch()()
	steps, last := 3+rand.IntN(30), false
	for i := 0; i < steps; i++ {
		if !last && t.finishing.Load() {
			last, steps = true, i+2
		}
		if err := pause.Sleep(n.workCtx(), pause.Jitter(t.Step/2, 2)); err != nil {
			return nil, context.Cause(ctx)
		}
		n.claim()
		if err := n.step(); err != nil {
			return nil, err
		}
	}
	if last {
		t.done = true
		return n.next(0, true), worklease.ErrRetire
	}
	var final []byte
	if rand.IntN(2) == 0 {
		final = n.next(0, false)
	}
	return final, []error{nil, errGaveUp, worklease.ErrRetire}[rand.IntN(3)]
}

// workCtx is what the work obeys. Fencing is for work that does not.
func (n *tenure) workCtx() context.Context {
	if n.Reckless || n.Sabotage == sabotageUnfenced {
		return context.WithoutCancel(n.ctx)
	}
	return n.ctx
}

// next returns the state after so many more steps.
func (n *tenure) next(steps int, done bool) []byte {
	n.state.Step += steps
	n.state.Try++
	n.state.Done = done
	return []byte(n.state.String())
}

// step does one step.
func (n *tenure) step() error {
	ctx, state := n.workCtx(), n.next(1, false)
	if n.Together && n.Sabotage != sabotageTorn {
		return n.stepTogether(ctx, state)
	}
	if _, err := n.beside.ExecContext(ctx, insertEffect, n.effect()...); err != nil {
		return err
	}
	n.claim()
	return n.lease.Checkpoint(ctx, n.token, state)
}

// insertEffect is what stands for the world outside of the leases.
const insertEffect = `INSERT INTO effects (work_id, step, fencing_token, holder_id) VALUES ($1, $2, $3, $4)`

func (n *tenure) effect() []any {
	return []any{n.ID, n.state.Step, int64(n.token.FencingToken()), n.Holder}
}

// stepTogether commits the effect and the checkpoint in one transaction.
func (n *tenure) stepTogether(ctx context.Context, state []byte) error {
	tx, err := n.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if _, err := tx.ExecContext(ctx, insertEffect, n.effect()...); err != nil {
		return err
	}
	n.claim()
	if err := n.lease.Checkpoint(postgres.InTx(ctx, tx), n.token, state); err != nil {
		return err
	}
	err = tx.Commit()
	e := history.Event{At: history.Now(), Kind: history.Saved, Work: n.ID, Token: n.token.FencingToken(), State: string(state)}
	if err != nil {
		e.Kind, e.Text = history.SaveLost, err.Error()
	}
	n.log.write(e)
	return err
}

// watch looks at the lease window now and then, until the function that it returns is called.
func (n *tenure) watch() (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(n.ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pause.Sleep(ctx, n.TTL/16) == nil {
			n.claim()
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// claim tells until when the holder holds itself safe, if it does and has not told so already.
func (n *tenure) claim() {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := history.Now()
	deadline, ok := worklease.LeaseWindow(n.ctx)
	if !ok || deadline.Equal(n.claimed) {
		return
	}
	n.claimed = deadline
	n.log.write(history.Event{
		At: at, Kind: history.Claim, Work: n.ID, Token: n.token.FencingToken(), Until: history.InstantOf(deadline),
	})
}
