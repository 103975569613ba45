// Package pgxlisten lets the PostgreSQL store listen with pgx:
//
//	store, err := postgres.New(db, postgres.WithListener(pgxlisten.DSN(dsn), nil))
//
// It is a module of its own, so that only those who use it get the driver.
package pgxlisten

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/aetomala/worklease/backend/postgres"
)

var _ postgres.Listener = Connect(nil)

// Connect opens a connection that nobody else uses. It is called again after each loss, so that what it
// connects with may change, as a password does.
type Connect func(ctx context.Context) (*pgx.Conn, error)

// DSN returns a Connect for a connection string, as in pgx.Connect. It must lead to the server itself, or to
// a pooler in session mode, and with several hosts needs target_session_attrs=read-write.
func DSN(dsn string) Connect {
	return func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, dsn) }
}

// Listen implements [postgres.Listener].
func (c Connect) Listen(ctx context.Context, channel string, listening func(), heard func(payload string)) error {
	conn, err := c(ctx)
	if err != nil {
		return err
	}
	defer bye(conn)
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	listening()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		heard(n.Payload)
	}
}

// bye has the server told, if it can be reached. What fails then is a connection that is over anyway.
func bye(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
