package redis

import (
	"context"
	"time"
)

const (
	// grace is how long a call waits, once its context has ended, for a client that is only about to
	// notice: its error says more than the context's alone.
	grace = 20 * time.Millisecond
	// maxStuck bounds the calls that nobody waits for any more. Each keeps a connection from others.
	maxStuck = 128
	// outlast is how long an Acquire goes on when its caller has left: what it has won is to be undone.
	outlast = 2 * time.Second
	// undoTimeout bounds the attempt to take back an acquisition.
	undoTimeout = 5 * time.Second
)

// promptly makes a call that returns soon after ctx ends, also if the client does not: go-redis waits for an
// answer until its ReadTimeout, and looks at a deadline only if ContextTimeoutEnabled is set. Such a call goes on by
// itself, with its connection. If it succeeds after all, late is called.
func (b *Backend) promptly(ctx context.Context, op string, call func(context.Context) error, late func()) error {
	if ctx == nil {
		return failed(context.Background(), op, errNilContext)
	}
	if err := ctx.Err(); err != nil {
		return failed(ctx, op, err)
	}
	if ctx.Done() == nil {
		return failed(ctx, op, call(ctx))
	}
	if b.stuck.Load() >= maxStuck {
		return failed(ctx, op, errStuck)
	}
	answer, left := make(chan error), make(chan struct{})
	go func() {
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
		return failed(ctx, op, err)
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-answer:
		return failed(ctx, op, err)
	case <-timer.C:
		b.stuck.Add(1)
		close(left)
		return failed(ctx, op, ctx.Err())
	}
}

// outlasting returns a context that ends d after ctx. end frees it.
func outlasting(ctx context.Context, d time.Duration) (inner context.Context, end func()) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-inner.Done():
		}
	})
	return inner, func() {
		stop()
		cancel()
	}
}

// unsent is an argument that cannot be sent once ctx has ended, so that a call that has been waiting for a
// connection is not made for a caller that has left. The client gives up the connection then.
type unsent struct {
	ctx  context.Context
	text string
}

// MarshalBinary is called when the argument is about to be sent.
func (u unsent) MarshalBinary() ([]byte, error) { return []byte(u.text), u.ctx.Err() }
