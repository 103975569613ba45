package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/aetomala/worklease/internal/prompt"
)

const poolerCure = "with lib/pq set binary_parameters=yes, with pgx default_query_exec_mode=exec, cache_describe or simple_protocol, and use WithoutPrepare"

var errMixedUp = errors.New("another statement ran with these parameters, or none: " + mixedUpCure)

// errNotChanged is for a statement that changed nothing although, a moment later, it could have.
var errNotChanged = errors.New("nothing was changed, and yet the lease is held: another call has just revived it, or " + mixedUpCure)

const mixedUpCure = "a pooler separates parsing from execution; " + poolerCure

// readOnly is the code for a write to a server, or in a session, that takes none.
const readOnly = "25006"

// cures says what to do about the errors of a server or a connection that is not set up as it must be.
var cures = map[string]string{
	"42P01":  "no table worklease_leases in the search_path: run Migrate, or set search_path in the connection string",
	"42703":  "the table is of an older version: run Migrate",
	"42501":  "the role needs SELECT, INSERT, UPDATE and DELETE on worklease_leases, and USAGE on worklease_fencing_seq",
	readOnly: "the server is read-only: a standby, or default_transaction_read_only is on; or the transaction was begun so",
	"40001":  "the isolation level must be READ COMMITTED: see default_transaction_isolation",
	"40P01":  "a deadlock with another user of the table",
	// The store's own statements never get these from a server that they reach by themselves.
	"08P01": mixedUpCure, // another number of parameters
	"22P02": mixedUpCure, // parameters of another type
	"22P03": mixedUpCure,
	"26000": "a pooler loses prepared statements: " + poolerCure,
	"42P05": "a pooler loses prepared statements: " + poolerCure,
	"53300": "the server has no connection left: see max_connections, and SetMaxOpenConns",
}

// migrateCures go before cures for Migrate, which needs other things.
var migrateCures = map[string]string{
	"23514": "a row holds a value that the constraint does not allow",
	"3F000": "search_path names no schema that exists and that the role may use",
	"42501": "it takes the owner of the table and the sequence, or the right to create them in the schema",
	"55P03": "another session keeps a lock: look for open transactions in pg_stat_activity",
}

// failed is the one place where an error gets its context.
func failed(ctx context.Context, op string, err error) error {
	return prompt.Failed(ctx, "postgres: "+op, err)
}

// cured adds to a failure what can be done about it. It belongs into the goroutine of the call: to look
// at the pool takes the pool's lock, which database/sql also holds while it closes a statement.
func (b *Backend) cured(ctx context.Context, op string, err error) error {
	if err == nil || prompt.IsAnswer(err) {
		return err
	}
	if cure := b.cure(ctx, op, err); cure != "" {
		return fmt.Errorf("%w (%s)", err, cure)
	}
	return err
}

func (b *Backend) cure(ctx context.Context, op string, err error) string {
	if cure, known := migrateCures[sqlState(err)]; known && op == "migrate" {
		return cure
	}
	if cure, known := cures[sqlState(err)]; known {
		return cure
	}
	if b.calls.Stuck() > 0 && prompt.Ended(ctx) != nil {
		return "calls are stuck in the driver, each with a connection"
	}
	if stats := b.db.Stats(); prompt.Ended(ctx) != nil && stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
		return fmt.Sprintf("all %d connections of the pool are in use: give the store a *sql.DB of its own", stats.MaxOpenConnections)
	}
	return ""
}

// sqlState returns the code of a server's error. The drivers agree on the method, so that none needs
// to be imported.
func sqlState(err error) string {
	if coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return coded.SQLState()
	}
	return ""
}
