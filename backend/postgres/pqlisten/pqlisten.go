// Package pqlisten lets the PostgreSQL store listen with lib/pq:
//
//	store, err := postgres.New(db, postgres.WithListener(pqlisten.DSN(dsn), nil))
//
// It is a module of its own, so that only those who use it get the driver.
package pqlisten

import (
	"context"
	"strings"

	"github.com/lib/pq"

	"github.com/aetomala/worklease/backend/postgres"
)

var _ postgres.Listener = DSN("")

// DSN is a connection string of lib/pq, by which a connection is opened that nobody else uses. It must lead to
// the server itself, or to a pooler in session mode, and with several hosts needs
// target_session_attrs=read-write. Where it names no connect_timeout, that is 10 s.
type DSN string

// Listen implements [postgres.Listener].
func (d DSN) Listen(ctx context.Context, channel string, listening func(), heard func(payload string)) error {
	news := make(chan *pq.Notification)
	conn, err := d.dial(ctx, news)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // it ends news, and Listen

	answer := make(chan error, 1)
	go func() {
		_, err := conn.Listen(channel)
		answer <- err
	}()
	var refused error
	for {
		select {
		case refused = <-answer:
			if refused == nil {
				listening()
			} else {
				_ = conn.Close() // fails if it is closed, and so does nothing
			}
		case n, open := <-news:
			switch {
			case open:
				heard(n.Extra)
			case ctx.Err() != nil:
				return ctx.Err()
			case refused != nil:
				return refused
			default:
				return conn.Err()
			}
		}
	}
}

// dial opens a connection. lib/pq knows no context here; what it is left with goes on until the timeout.
func (d DSN) dial(ctx context.Context, news chan *pq.Notification) (*pq.ListenerConn, error) {
	dsn, err := d.withTimeout()
	if err != nil {
		return nil, err
	}
	type result struct {
		conn *pq.ListenerConn
		err  error
	}
	dialed := make(chan result)
	go func() {
		conn, err := pq.NewListenerConn(dsn, news)
		select {
		case dialed <- result{conn, err}:
			return
		case <-ctx.Done():
		}
		if err == nil {
			_ = conn.Close()
			for range news { // it may be about to say something
			}
		}
	}()
	select {
	case r := <-dialed:
		return r.conn, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (d DSN) withTimeout() (string, error) {
	dsn := string(d)
	config, err := pq.NewConfig(dsn)
	if err != nil || config.ConnectTimeout > 0 {
		return dsn, err
	}
	switch {
	case !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://"):
		return dsn + " connect_timeout=10", nil
	case strings.Contains(dsn, "?"):
		return dsn + "&connect_timeout=10", nil
	default:
		return dsn + "?connect_timeout=10", nil
	}
}
