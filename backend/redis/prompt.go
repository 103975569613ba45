package redis

import (
	"context"
	"time"
)

// promptly makes a call that returns soon after ctx ends, also if the client does not: go-redis waits for an
// answer until its ReadTimeout, and looks at a deadline only if ContextTimeoutEnabled is set.
func (b *Backend) promptly(ctx context.Context, op string, call func(context.Context) error, late func()) error {
	return failed(ctx, op, b.calls.Do(ctx, call, late, errStuck))
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
