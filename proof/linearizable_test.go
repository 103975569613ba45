package proof

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
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
	fresh func() backend.Backend // for each history
	fault func()                 // nil: none
	kills *atomic.Int64
}

func inMemory(testing.TB) arena {
	return arena{fresh: func() backend.Backend { return memory.New() }}
}

func inPostgres(driver string) func(tb testing.TB) arena {
	return func(tb testing.TB) arena {
		store, _ := concurrent(tb, driver)
		return arena{fresh: func() backend.Backend { return store }}
	}
}

// underKills is a PostgreSQL store whose connections are terminated while they are used.
func underKills(driver string) func(tb testing.TB) arena {
	return func(tb testing.TB) arena {
		store, admin := concurrent(tb, driver)
		a := arena{fresh: func() backend.Backend { return store }, kills: new(atomic.Int64)}
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
			a.kills.Add(killed)
		}
		return a
	}
}

// concurrent opens a store with a connection for every client, and an administrator's pool.
func concurrent(tb testing.TB, driver string) (*postgres.Backend, *sql.DB) {
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
	db := pgtest.Open(tb, driver, pgtest.WithParams(dsn, "application_name=prey "+schema))
	db.SetMaxOpenConns(clients)
	db.SetMaxIdleConns(clients)
	tb.Cleanup(func() { db.SetMaxIdleConns(0) }) // or closing the pool fails, if they were killed
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
		{"memory", inMemory, 80, 40},
		{"PostgreSQL, lib/pq", inPostgres("pq"), 5, 5},
		{"PostgreSQL, pgx", inPostgres("pgx"), 5, 5},
		{"PostgreSQL, lib/pq, connections killed", underKills("pq"), 5, 5},
		{"PostgreSQL, pgx, connections killed", underKills("pgx"), 5, 5},
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
				h := record(t.Context(), arena.fresh(), fmt.Sprintf("work %d", i), rand.New(rand.NewPCG(seed, uint64(i))), arena.fault)
				calls, unknown = calls+len(h.ops), unknown+h.unknown()
				if err := h.check(); err != nil {
					violations++
					t.Errorf("seed %d, history %d: %v", seed, i, err)
				}
			}
			var kills int64
			if arena.kills != nil {
				kills = arena.kills.Load()
			}
			figures("histories", row.name, "%d histories of %d calls, %d of unknown outcome, %d connections killed, %d violations, %s",
				histories, calls, unknown, kills, violations, since(begun))
		})
	}
}
