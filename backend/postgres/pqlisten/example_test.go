package pqlisten_test

import (
	"database/sql"
	"log/slog"

	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/backend/postgres/pqlisten"
)

// One connection string may lead through a pooler; the listener's must not.
func Example() {
	open := func(db *sql.DB, direct string) (*postgres.Backend, error) {
		return postgres.New(db, postgres.WithListener(pqlisten.DSN(direct), func(err error) {
			if err != nil {
				slog.Warn("waiters are not told of releases, and poll", "error", err)
				return
			}
			slog.Info("waiters are told of releases")
		}))
	}
	_ = open
}
