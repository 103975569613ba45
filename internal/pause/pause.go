// Package pause has what every loop here does between two attempts: draw how long to wait, and wait for
// it no longer than the context lives, or than a lease is held.
package pause

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

// Jitter returns d and a random part of up to share of it on top: a duration in [d, d+share*d). What
// would overflow is the longest duration there is, and what is not positive stays as it is.
func Jitter(d time.Duration, share float64) time.Duration {
	if d <= 0 {
		return d
	}
	extra := time.Duration(rand.Float64() * share * float64(d))
	if extra > math.MaxInt64-d {
		return math.MaxInt64
	}
	return d + extra
}

// Sleep waits for d. If ctx ends first, or has ended already, it returns ctx.Err().
func Sleep(ctx context.Context, d time.Duration) error {
	// Without a timer if there is nothing to wait for: many that are due as soon as they are made, in
	// parallel, break the race detector of Go 1.26 in a synctest bubble.
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Watch returns a Sleep that also ends when workID may have become free, where lease knows how to tell, as
// that of the root package does on some stores; otherwise it is Sleep, and told is false. stop ends what
// makes the difference.
func Watch(lease any, workID string) (sleep func(ctx context.Context, d time.Duration) error, stop func(), told bool) {
	if w, ok := lease.(interface {
		Watch(workID string) (pause func(ctx context.Context, d time.Duration) error, stop func())
	}); ok {
		if sleep, stop = w.Watch(workID); sleep != nil {
			return sleep, stop, true
		}
	}
	return Sleep, func() {}, false
}

// Looks returns how to ask which of many work IDs it is worth trying to acquire, where lease knows how, as
// that of the root package does. It is nil otherwise. Whether the store can tell is known when it is
// called: if not, it fails with [errors.ErrUnsupported].
func Looks(lease any) (free func(ctx context.Context, workIDs []string) ([]string, error)) {
	l, ok := lease.(interface {
		Free(ctx context.Context, workIDs []string) ([]string, error)
	})
	if !ok {
		return nil
	}
	return l.Free
}
