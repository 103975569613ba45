package upgrade

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/model"
	"github.com/aetomala/worklease/internal/pgtest"
)

var rounds = flag.Int("rounds", 0, "how many tables of each design are upgraded; 0: one, and nothing is printed")

const (
	holders   = 6
	migrators = 4
	again     = 3 // how often each migrates
)

func TestTablesAreUpgradedWhileHoldersWork(t *testing.T) {
	for _, design := range designs {
		t.Run(design.name, func(t *testing.T) {
			t.Parallel()
			begun, calls, refused, leases := time.Now(), 0, 0, 0
			for range max(*rounds, 1) {
				u := &upgrade{dsn: pgtest.Schema(t), seed: rand.Uint64()}
				admin := pgtest.Open(t, "pgx", u.dsn)
				fill(t, admin, design.name, design.released)
				u.usable.Store(design.usable)
				before := read(t, admin)
				u.run(t, before)
				rows := make(map[string]model.Row)
				for _, h := range u.holders {
					maps.Copy(rows, h.rows)
					calls, refused = calls+h.calls, refused+h.refused
				}
				if err := differ(rows, read(t, admin)); err != nil {
					t.Errorf("seed %d: %v", u.seed, err)
				}
				leases += len(before)
				var next uint64
				if err := admin.QueryRowContext(t.Context(), "SELECT nextval('worklease_fencing_seq')").Scan(&next); err != nil {
					t.Fatal(err)
				}
				if highest := u.highest.Load(); next <= highest {
					t.Errorf("seed %d: the sequence gives %d after %d", u.seed, next, highest)
				}
				if t.Failed() {
					break
				}
			}
			if *rounds > 0 {
				violations := 0
				if t.Failed() {
					violations = 1
				}
				fmt.Printf("\nproof: upgrade: %s: %d tables of %d leases in all, %d migrations, %d calls beside them, %d before there was a table to use, %d violations, %s\n",
					design.name, *rounds, leases, *rounds*migrators*again, calls, refused, violations, time.Since(begun).Round(100*time.Millisecond))
			}
		})
	}
}

// upgrade is one table's.
type upgrade struct {
	dsn     string
	seed    uint64
	usable  atomic.Bool
	highest atomic.Uint64
	holders []*holder
}

// run migrates the table from several processes' pools at once, while holders work.
func (u *upgrade) run(t *testing.T, rows map[string]model.Row) {
	t.Helper()
	works := slices.Sorted(maps.Keys(rows))
	for i := range holders {
		driver := []string{"pgx", "pq"}[i%2]
		store, err := postgres.New(pgtest.Open(t, driver, u.dsn))
		if err != nil {
			t.Fatal(err)
		}
		h := &holder{
			name: fmt.Sprintf("holder %d (%s)", i, driver), store: store, rows: make(map[string]model.Row),
			random: rand.New(rand.NewPCG(u.seed, uint64(i))), usable: &u.usable, highest: &u.highest,
		}
		for k := i; k < len(works); k += holders {
			row := rows[works[k]]
			h.works, h.rows[works[k]] = append(h.works, works[k]), row
			h.saw(row.Token)
		}
		u.holders = append(u.holders, h)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var working, migrating sync.WaitGroup
	begun := make(chan struct{}, holders)
	for _, h := range u.holders {
		working.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				if err := h.turn(t.Context()); err != nil { // not ctx: the outcome of each call is to be known
					t.Errorf("seed %d: %v", u.seed, err)
					cancel()
				}
				if turn == 20 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range holders {
		select {
		case <-begun:
		case <-ctx.Done():
		}
	}
	together := make(chan struct{})
	for i := range migrators {
		db := pgtest.Open(t, []string{"pq", "pgx"}[i%2], u.dsn)
		migrating.Go(func() {
			<-together
			for range again {
				if err := postgres.Migrate(t.Context(), db); err != nil {
					t.Errorf("seed %d: %v", u.seed, err)
				}
				u.usable.Store(true)
			}
		})
	}
	close(together)
	migrating.Wait()
	cancel()
	working.Wait()
	for _, h := range u.holders { // now nothing is in the way
		for range 20 {
			if err := h.turn(t.Context()); err != nil {
				t.Fatalf("seed %d: %v", u.seed, err)
			}
		}
	}
}
