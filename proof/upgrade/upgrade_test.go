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
			begun, calls, refused, leases, bad := time.Now(), 0, 0, 0, 0
			for range max(*rounds, 1) {
				u := &upgrade{seed: rand.Uint64()}
				if !t.Run(fmt.Sprintf("seed %d", u.seed), func(t *testing.T) { u.check(t, design) }) {
					bad++
				}
				leases += u.leases
				for _, h := range u.holders {
					calls, refused = calls+h.calls, refused+h.refused
				}
			}
			if *rounds > 0 {
				fmt.Printf("\nproof: upgrade: %s: %d tables of %d leases in all, %d migrations, %d calls beside them, "+
					"%d of which found no table to use yet, %d tables with a violation, %s\n", design.name, *rounds, leases,
					*rounds*migrators*again, calls, refused, bad, time.Since(begun).Round(100*time.Millisecond))
			}
		})
	}
}

// upgrade is one table's.
type upgrade struct {
	dsn     string
	seed    uint64
	leases  int // that it had
	usable  atomic.Bool
	highest atomic.Uint64
	holders []*holder
}

// check upgrades a table of a design and compares what there is afterwards.
func (u *upgrade) check(t *testing.T, d design) {
	u.dsn = pgtest.Schema(t)
	admin := pgtest.Open(t, "pgx", u.dsn)
	fill(t, admin, d)
	u.usable.Store(d.usable)
	before := read(t, admin)
	u.leases = len(before)
	u.run(t, before)
	want := make(map[string]model.Row)
	for _, h := range u.holders {
		maps.Copy(want, h.rows)
	}
	if err := differ(want, read(t, admin)); err != nil {
		t.Error(err)
	}
	var next uint64
	if err := admin.QueryRowContext(t.Context(), "SELECT nextval('worklease_fencing_seq')").Scan(&next); err != nil {
		t.Fatal(err)
	}
	if highest := u.highest.Load(); next <= highest {
		t.Errorf("the sequence gives %d after %d", next, highest)
	}
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
					t.Error(err)
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
					t.Error(err)
					return
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
				t.Fatal(err)
			}
		}
	}
}
