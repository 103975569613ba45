package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// grace is how long a call waits, once its context has ended, for a driver that is only about to
	// notice: its error says more than the context's alone.
	grace = 20 * time.Millisecond
	// maxStuck bounds the calls that nobody waits for any more. Each keeps a connection from others.
	maxStuck = 128
	// outlast is how long the statement of an Acquire goes on when its caller has left. A statement that is
	// cancelled at once may have won all the same, and nobody would ever learn its token.
	outlast = 2 * time.Second
	// undoTimeout bounds the attempt to take back an acquisition.
	undoTimeout = 5 * time.Second
)

var (
	errNilContext = errors.New("the context is nil")
	errStuck      = fmt.Errorf("%d calls are stuck in the driver: the network is silent, and the driver, unlike pgx, waits for as long as TCP does; "+
		"to bound that, have its dialer set TCP_USER_TIMEOUT", maxStuck)
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
	attempt := func() error { return b.cured(ctx, op, call(ctx)) }
	if ctx.Done() == nil {
		return b.failed(ctx, op, attempt())
	}
	if b.stuck.Load() >= maxStuck {
		return b.failed(ctx, op, errStuck)
	}
	answer, left := make(chan error), make(chan struct{})
	go func() {
		growStack()
		err := attempt()
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

// outlasting returns a context for a statement whose outcome must be known. It ends with ctx as long as
// the statement waits for its first connection, and outlasts it by d once the statement has been sent:
// when the driver has taken the value of the parameter that mark returns, which it may do again. end
// frees it.
func outlasting(ctx context.Context, d time.Duration) (inner context.Context, mark func(int64) driver.Valuer, end func()) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var (
		mu    sync.Mutex
		sent  bool
		timer *time.Timer
	)
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if sent && inner.Err() == nil {
			timer = time.AfterFunc(d, cancel)
			return
		}
		cancel()
	})
	mark = func(value int64) driver.Valuer {
		return valuer(func() (driver.Value, error) {
			mu.Lock()
			defer mu.Unlock()
			if err := ctx.Err(); err != nil && !sent {
				return nil, err
			}
			sent = true
			return value, nil
		})
	}
	end = func() {
		stop()
		mu.Lock()
		defer mu.Unlock()
		cancel()
		if timer != nil {
			timer.Stop()
		}
	}
	return inner, mark, end
}

// valuer is a parameter whose value is made when it is sent.
type valuer func() (driver.Value, error)

// Value implements [driver.Valuer].
func (v valuer) Value() (driver.Value, error) { return v() }
