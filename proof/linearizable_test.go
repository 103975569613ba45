package proof

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// arena is a store that concurrent clients are let loose on.
type arena struct {
	fresh  func() backend.Backend // for each history
	fault  func()                 // nil: none. Clients call it now and then, and calls may fail
	faults *atomic.Int64
	// resends says that a call may run twice, both times before it returns: database/sql sends it again when
	// the driver calls a connection bad, which lib/pq does whenever one ends. That is the same as once if
	// the lease is one that lasts and that only one client at a time uses, as these clients then do.
	resends bool
}

func inMemory(testing.TB) arena {
	return arena{fresh: func() backend.Backend { return memory.New() }}
}

func inPostgres(driver string) func(tb testing.TB) arena {
	return func(tb testing.TB) arena {
		store, _ := concurrent(tb, driver, nil)
		return arena{fresh: func() backend.Backend { return store }}
	}
}

// underKills is a PostgreSQL store whose connections are terminated while they are used.
func underKills(driver string) func(tb testing.TB) arena {
	return func(tb testing.TB) arena {
		store, admin := concurrent(tb, driver, nil)
		a := arena{fresh: func() backend.Backend { return store }, faults: new(atomic.Int64), resends: driver == "pq"}
		a.fault = func() {
			var killed int64
			err := admin.QueryRow(`
				SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM (
					SELECT pid FROM pg_stat_activity WHERE application_name = 'prey ' || current_schema()
					ORDER BY state = 'active' DESC, random() LIMIT 2
				) AS prey`).Scan(&killed)
			if err != nil {
				tb.Errorf("killing connections: %v", err)
			}
			a.faults.Add(killed)
		}
		return a
	}
}

// underLosses is a PostgreSQL store whose answers get lost, and the connections with them: what was asked
// for has been done.
func underLosses(driver string) func(tb testing.TB) arena {
	return func(tb testing.TB) arena {
		var proxy *pgtest.Proxy
		store, admin := concurrent(tb, driver, func(dsn string) string {
			proxy = pgtest.NewProxy(tb, dsn)
			return proxy.DSN()
		})
		a := arena{fresh: func() backend.Backend { return store }, faults: new(atomic.Int64), resends: driver == "pq"}
		var one sync.Mutex
		a.fault = func() {
			one.Lock()
			defer one.Unlock()
			proxy.DropReplies(true)
			if err := admin.Ping(); err != nil { // while that takes, others lose theirs
				tb.Errorf("waiting for answers to get lost: %v", err)
			}
			proxy.PassReplies()
			a.faults.Add(1)
		}
		return a
	}
}

// concurrent opens a store with a connection for every client, and an administrator's pool. via, unless
// it is nil, leads the store another way.
func concurrent(tb testing.TB, driver string, via func(dsn string) string) (*postgres.Backend, *sql.DB) {
	tb.Helper()
	const clients = 32
	dsn := pgtest.Schema(tb)
	admin := pgtest.Open(tb, "pgx", dsn)
	admin.SetMaxOpenConns(4)
	execute(tb, admin, postgres.Schema)
	var schema string
	if err := admin.QueryRow("SELECT current_schema()").Scan(&schema); err != nil {
		tb.Fatal(err)
	}
	if via != nil {
		dsn = via(dsn)
	}
	db := pgtest.Open(tb, driver, pgtest.WithParams(dsn, "application_name=prey "+schema))
	db.SetMaxOpenConns(clients)
	db.SetMaxIdleConns(clients)
	tb.Cleanup(func() { db.SetMaxIdleConns(0) }) // or closing the pool fails, where connections have failed
	store, err := postgres.New(db)
	if err != nil {
		tb.Fatal(err)
	}
	return store, admin
}

func TestHistoriesAreLinearizable(t *testing.T) {
	for _, row := range []struct {
		name  string
		open  func(tb testing.TB) arena
		share int // of a hundred histories in the long form
		short int // histories in the short form
	}{
		{"memory", inMemory, 63, 30},
		{"PostgreSQL, pq", inPostgres("pq"), 8, 3},
		{"PostgreSQL, pgx", inPostgres("pgx"), 8, 3},
		{"PostgreSQL, pq, connections killed", underKills("pq"), 3, 2},
		{"PostgreSQL, pgx, connections killed", underKills("pgx"), 3, 2},
		{"PostgreSQL, pq, answers lost", underLosses("pq"), 3, 2},
		{"PostgreSQL, pgx, answers lost", underLosses("pgx"), 3, 2},
		{"Redis", inRedis, 3, 3},
		{"Redis, connections killed", underKillsInRedis, 3, 3},
		{"Redis, answers lost", underLossesInRedis, 3, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			histories := row.short
			if long := asked(t, "WORKLEASE_PROOF_HISTORIES"); long > 0 {
				histories = long * row.share / 100
			}
			arena := row.open(t)
			begun, seed := time.Now(), rand.Uint64()
			var calls, unknown, violations int
			for i := range histories {
				// Work IDs are not used again: a call whose outcome is unknown may take effect late.
				h := record(t.Context(), arena, fmt.Sprintf("work %d", i), rand.New(rand.NewPCG(seed, uint64(i))))
				calls, unknown = calls+len(h.ops), unknown+h.unknown()
				if err := h.check(); err != nil {
					violations++
					t.Errorf("seed %d, history %d: %v", seed, i, err)
				}
			}
			faults := int64(0)
			if arena.faults != nil {
				faults = arena.faults.Load()
			}
			figures("histories", row.name, "%d histories of %d calls, %d of unknown outcome, %d faults, %d violations, %s",
				histories, calls, unknown, faults, violations, since(begun))
		})
	}
}
