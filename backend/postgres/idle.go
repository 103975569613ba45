package postgres

import (
	"context"
	"database/sql/driver"
	"time"
)

// dropEvery is how often idle connections are dropped at most, and how long that may take.
const dropEvery = time.Second

// staleConnection reports whether a connection failed in a way that others of the pool will too. The
// server ended it, and ended all; or it leads to a server that has become a standby, or began while
// writes were turned off: then it stays read-only for as long as it lives, which may be for ever.
func staleConnection(err error) bool {
	switch sqlState(err) {
	case readOnly, "57P01", "57P02":
		return true
	}
	return false
}

// dropIdle closes the connections that lie idle in the pool, so that the next call opens a new one.
func (b *Backend) dropIdle() {
	if !b.dropping.CompareAndSwap(false, true) {
		return
	}
	defer time.AfterFunc(dropEvery, func() { b.dropping.Store(false) })
	ctx, cancel := context.WithTimeout(context.Background(), dropEvery)
	defer cancel()
	for range b.db.Stats().Idle {
		conn, err := b.db.Conn(ctx)
		if err != nil {
			return
		}
		// It is the way to tell database/sql not to use a connection again. It closes it, and lib/pq then
		// says goodbye to each statement: on a silent network that takes as long as the connection lasts.
		go conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}
