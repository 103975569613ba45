package postgres_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
)

// forgettingNetwork is a driver that calls a connection bad after a statement has run, as lib/pq does when a
// connection ends instead of an answer.
type forgettingNetwork struct {
	driver.Connector
	next atomic.Bool // the next statement's answer is lost
}

func (u *forgettingNetwork) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := u.Connector.Connect(ctx)
	return forgettingConn{conn, u}, err
}

type forgettingConn struct {
	driver.Conn
	of *forgettingNetwork
}

func (c forgettingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	if err != nil || !c.of.next.CompareAndSwap(true, false) {
		return rows, err
	}
	values := make([]driver.Value, len(rows.Columns()))
	for err == nil {
		err = rows.Next(values)
	}
	if err = errors.Join(rows.Close(), err); !errors.Is(err, io.EOF) {
		return nil, err
	}
	return nil, driver.ErrBadConn
}

// database/sql sends such a statement again. What the second run finds may be the work of the first.
func TestRefusalOfACallThatMayHaveTakenEffectIsNotBelieved(t *testing.T) {
	f := newFixture(t, "pgx")
	connector, err := f.db.Driver().(driver.DriverContext).OpenConnector(f.dsn)
	if err != nil {
		t.Fatal(err)
	}
	network := &forgettingNetwork{Connector: connector}
	db := sql.OpenDB(network)
	defer db.Close()
	store, err := postgres.New(db, postgres.WithoutPrepare())
	if err != nil {
		t.Fatal(err)
	}
	lose := func(call func() error) error {
		t.Helper()
		network.next.Store(true)
		err := call()
		if network.next.Load() {
			t.Fatal("nothing was sent")
		}
		return err
	}
	unknown := func(what string, call func() error) {
		t.Helper()
		err := lose(call)
		mustNotMatch(t, err, backend.ErrFenced, backend.ErrLeaseExpired, backend.ErrLeaseHeld)
		if err == nil {
			t.Errorf("%s succeeded", what)
		}
	}
	acquireAs := func(workID, holderID string) func() error {
		return func() error {
			_, err := store.Acquire(t.Context(), workID, holderID, time.Minute)
			return err
		}
	}

	unknown("Acquire", acquireAs("lost", "a"))
	mustMatch(t, lose(acquireAs("lost", "b")), backend.ErrLeaseHeld) // by another: this call has not won
	mustMatch(t, acquireAs("lost", "a")(), backend.ErrLeaseHeld)     // sent once

	record := acquire(t, store, "w", "a", time.Minute)
	mustMatch(t, lose(func() error { return renewMinute(t.Context(), store, record) }), nil)
	mustMatch(t, lose(func() error { return store.Checkpoint(t.Context(), record, []byte("state"), time.Minute) }), nil)
	unknown("Release", func() error { return store.Release(t.Context(), record, backend.ExitFinished) })
	mustMatch(t, store.Release(t.Context(), record, backend.ExitRetired), backend.ErrLeaseExpired)

	next := acquire(t, store, "w", "b", time.Minute)
	found, err := store.ReadCheckpoint(t.Context(), next)
	if err != nil || string(found.State) != "state" || found.PrevExit != backend.ExitFinished {
		t.Errorf("the successor reads %+v, %v", found, err)
	}
	unknown("Forget", func() error { return store.Forget(t.Context(), next) })
	mustMatch(t, store.Forget(t.Context(), next), backend.ErrFenced)
}

// fullNetwork is a driver that loses the first statement that tells on its way, and the second is refused since there
// is no room to tell. The first arrives by then.
type fullNetwork struct {
	driver.Connector
	sent    atomic.Int64
	arrives func()
}

func (u *fullNetwork) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := u.Connector.Connect(ctx)
	return fullConn{conn, u}, err
}

type fullConn struct {
	driver.Conn
	of *fullNetwork
}

type queueIsFull struct{}

func (queueIsFull) Error() string    { return "too many notifications in the NOTIFY queue" }
func (queueIsFull) SQLState() string { return "54000" }

func (c fullConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.Contains(query, "pg_notify") {
		if c.of.sent.Add(1) == 1 {
			return nil, driver.ErrBadConn
		}
		c.of.arrives()
		return nil, queueIsFull{}
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

// What is sent without a notification follows what may yet run with one.
func TestRefusalOfAReleaseThatCouldNotTellIsNotBelieved(t *testing.T) {
	f := newFixture(t, "pgx")
	connector, err := f.db.Driver().(driver.DriverContext).OpenConnector(f.dsn)
	if err != nil {
		t.Fatal(err)
	}
	record := acquire(t, f.store, "w", "a", time.Minute)
	network := &fullNetwork{Connector: connector, arrives: func() {
		if err := f.store.Release(t.Context(), record, backend.ExitFinished); err != nil {
			t.Error(err)
		}
	}}
	db := sql.OpenDB(network)
	defer db.Close()
	store, err := postgres.New(db, postgres.WithoutPrepare(), postgres.WithListener(mute{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	err = store.Release(t.Context(), record, backend.ExitFinished)
	mustNotMatch(t, err, backend.ErrFenced, backend.ErrLeaseExpired)
	if err == nil || network.sent.Load() != 2 {
		t.Errorf("%v, after %d statements that tell", err, network.sent.Load())
	}
}
