package postgres

import (
	"context"
	"errors"
	"time"
)

const (
	// grace is how long a call waits, once its context has ended, for a driver that is only about to
	// notice: its error says more than the context's alone.
	grace = 20 * time.Millisecond
	// maxStuck bounds the calls that nobody waits for any more. Each keeps a connection from others.
	maxStuck = 128
	// undoTimeout bounds the attempt to take back an acquisition.
	undoTimeout = 5 * time.Second
)

var (
	errNilContext = errors.New("the context is nil")
	errStuck      = errors.New("too many calls are stuck in the driver: the network is silent, and nothing bounds how long the operating system puts up with that")
)

// promptly makes a call that returns soon after ctx ends, also if the driver does not: lib/pq waits
// for a silent server as long as TCP does. Such a call goes on by itself, with its connection, which
// database/sql gives to nobody else meanwhile. If it succeeds after all, late is called.
func (b *Backend) promptly(ctx context.Context, op string, call func(context.Context) error, late func()) error {
	if ctx == nil {
		return b.failed(context.Background(), op, errNilContext)
	}
	if err := ctx.Err(); err != nil {
		return b.failed(ctx, op, err)
	}
	if ctx.Done() == nil {
		return b.failed(ctx, op, call(ctx))
	}
	if b.stuck.Load() >= maxStuck {
		return b.failed(ctx, op, errStuck)
	}
	answer, left := make(chan error), make(chan struct{})
	go func() {
		growStack()
		err := call(ctx)
		select {
		case answer <- err:
			return
		case <-left:
		}
		if err == nil && late != nil {
			late()
		}
		b.stuck.Add(-1)
	}()
	select {
	case err := <-answer:
		return b.failed(ctx, op, err)
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-answer:
		return b.failed(ctx, op, err)
	case <-timer.C:
		b.stuck.Add(1)
		close(left)
		return b.failed(ctx, op, ctx.Err())
	}
}
