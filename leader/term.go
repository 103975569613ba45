package leader

import (
	"context"
	"errors"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/tenure"
)

// term is one leadership, from the acquisition of the lease to its release, or the attempt to get one.
type term struct {
	ctx context.Context // the caller's
	cfg Config
	fn  func(ctx context.Context) error

	began    bool
	lost     bool // OnLost has been called
	finished bool // fn returned nil or an error matching ErrRetire
}

// serve goes through the term, without any pause.
func (t *term) serve(lease worklease.Lease, workID string) tenure.Result {
	t.cfg.Health.ask(worklease.HasWaitForLease(t.cfg.AcquireOptions))
	result := tenure.Run(t.ctx, workID, tenure.Config{
		Lease:          lease,
		AcquireOptions: t.cfg.AcquireOptions,
		RenewalOptions: t.cfg.RenewalOptions,
		CleanupTimeout: t.cfg.CleanupTimeout,
		Stateless:      true,
		OnHeld:         t.begin,
		OnLost:         t.lose,
	}, t.work)
	switch {
	case result.Lost && t.began && !t.lost:
		t.lose(result.Token)
	case result.Exit == worklease.ExitFinished || result.Exit == worklease.ExitRetired:
		call(t.ctx, t.cfg.OnRelinquished, result.Token)
	}
	return result
}

// begin is called when the lease is held. If it is lost meanwhile, work is not called any more.
func (t *term) begin(ctx context.Context, token worklease.Token) {
	t.began = true
	t.cfg.Health.elect(ctx)
	call(t.ctx, t.cfg.OnElected, token)
	t.cfg.Health.leave()
}

// work is what is done while the lease is held.
func (t *term) work(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
	t.cfg.Health.lead(ctx)
	defer t.cfg.Health.leave()
	err := t.fn(ctx)
	t.finished = err == nil || errors.Is(err, worklease.ErrRetire)
	return nil, err
}

// lose is called at the moment of the loss, beside begin or work, or after them by serve.
func (t *term) lose(token worklease.Token) {
	t.lost = true
	t.cfg.Health.lose()
	call(t.ctx, t.cfg.OnLost, token)
}

func call(ctx context.Context, callback func(context.Context, worklease.Token), token worklease.Token) {
	if callback != nil {
		callback(ctx, token)
	}
}
