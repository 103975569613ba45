package postgres

import (
	"context"
	"database/sql/driver"
	"fmt"
	"sync"
	"time"

	"github.com/aetomala/worklease/internal/prompt"
)

var errStuck = fmt.Errorf("%d calls are stuck in the driver: the network is silent, and the driver, unlike pgx, waits for as long as TCP does; "+
	"to bound that, have its dialer set TCP_USER_TIMEOUT", prompt.MaxStuck)

// promptly makes a call that returns soon after ctx ends, also if the driver does not: lib/pq waits
// for a silent server as long as TCP does.
func (b *Backend) promptly(ctx context.Context, op string, call func(context.Context) error, late func()) error {
	return failed(ctx, op, b.calls.Do(ctx, func(ctx context.Context) error { return b.cured(ctx, op, call(ctx)) }, late, errStuck))
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
