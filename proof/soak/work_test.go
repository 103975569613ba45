package soak

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// work takes the connections of a pool, all of them and again and again.
type work struct {
	taken atomic.Int64
	done  sync.WaitGroup
	stop  context.CancelFunc
}

// start begins work for four times as many as there are connections, and returns once each is taken.
func start(ctx context.Context, t *testing.T, db *sql.DB, p params) *work {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	w := &work{stop: stop}
	for range 4 * p.connections {
		w.done.Go(func() {
			for ctx.Err() == nil {
				if err := w.take(ctx, db, p.hold); err != nil && ctx.Err() == nil {
					t.Errorf("the work: %v", err)
					return
				}
			}
		})
	}
	await(t, "the work to take the connections", func() bool { return w.taken.Load() >= int64(p.connections) })
	return w
}

// take keeps a connection for a while.
func (w *work) take(ctx context.Context, db *sql.DB, hold time.Duration) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	w.taken.Add(1)
	timer := time.NewTimer(hold)
	defer timer.Stop()
	select {
	case <-timer.C:
		_, err = conn.ExecContext(ctx, "SELECT 1")
	case <-ctx.Done():
	}
	return errors.Join(err, conn.Close())
}

func (w *work) end() {
	w.stop()
	w.done.Wait()
}
