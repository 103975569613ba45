package pqlisten_test

import (
	"testing"

	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/backend/postgres/pqlisten"
	"github.com/aetomala/worklease/internal/listentest"
)

func listener(dsn string) postgres.Listener { return pqlisten.DSN(dsn) }

func TestListener(t *testing.T) { listentest.Run(t, listener) }

func TestConformance(t *testing.T) { listentest.Conformance(t, "pq", listener) }
