package pgxlisten_test

import (
	"testing"

	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/backend/postgres/pgxlisten"
	"github.com/aetomala/worklease/internal/listentest"
)

func listener(dsn string) postgres.Listener { return pgxlisten.DSN(dsn) }

func TestListener(t *testing.T) { listentest.Run(t, listener) }

func TestConformance(t *testing.T) { listentest.Conformance(t, "pgx", listener) }
