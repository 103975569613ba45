package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// What the administrator does more than once.
const (
	reload            = "SELECT pg_reload_conf()"
	terminateBackends = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND application_name <> 'admin'`
)

// administrator is somebody with rights, whose connections the faults spare.
type administrator struct {
	tb  testing.TB
	dsn string
}

// do runs statements, each in a transaction of its own.
func (a *administrator) do(statements ...string) {
	a.connected(func(ctx context.Context, conn *pgx.Conn) error {
		for _, s := range statements {
			if _, err := conn.Exec(ctx, s, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		return nil
	})
}

// withLock holds a lock on the table of the leases that nobody else gets past.
func (a *administrator) withLock(f func()) {
	a.connected(func(ctx context.Context, conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "LOCK TABLE worklease_leases IN ACCESS EXCLUSIVE MODE"); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		f()
		return tx.Rollback(ctx)
	})
}

// connected calls f with a connection of its own: one kept from before a restart would be dead.
func (a *administrator) connected(f func(context.Context, *pgx.Conn) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, a.dsn)
	if err == nil {
		err = errors.Join(f(ctx, conn), conn.Close(ctx))
	}
	if err != nil {
		a.tb.Errorf("the administrator: %v", err)
	}
}
