package postgres_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

func TestMigrateMakesWhatTheSchemaSays(t *testing.T) {
	t.Parallel()
	_, reference := oldTable(t, "")
	exec(t, reference, postgres.Schema)
	want := definition(t, reference)
	onOldShapes(t, func(t *testing.T, shape string) {
		for _, driver := range pgtest.Drivers() {
			t.Run(driver, func(t *testing.T) {
				t.Parallel()
				dsn, admin := oldTable(t, shape)
				db := pgtest.Open(t, driver, dsn)
				migrate(t, db)
				if got := definition(t, admin); got != want {
					t.Errorf("the catalog has\n%s\nwant\n%s", got, want)
				}
				sequenceIsAhead(t, admin)
				nothingLeft(t, db)
			})
		}
	})
}

// The steps for those who run them by hand must lead to the same.
func TestUpgradingByHand(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../UPGRADING.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)```sql\n(BEGIN;.*?)```").FindSubmatch(page)
	if script == nil {
		t.Fatal("found no SQL in UPGRADING.md")
	}
	onOldShapes(t, func(t *testing.T, shape string) {
		_, admin := oldTable(t, shape)
		if shape == "" {
			exec(t, admin, postgres.Schema)
		}
		rows := lines(t, admin, rowsQuery)
		exec(t, admin, string(script[1]))
		if after := lines(t, admin, rowsQuery); !slices.Equal(after, rows) {
			t.Errorf("rows are %q, were %q", after, rows)
		}
		before, by := physical(t, admin), definition(t, admin)
		migrate(t, admin)
		if physical(t, admin) != before {
			t.Errorf("Migrate found more to do: it made\n%s\nof\n%s", definition(t, admin), by)
		}
		sequenceIsAhead(t, admin)
	})
}

func TestMigrateKeepsLeases(t *testing.T) {
	t.Parallel()
	onOldShapes(t, func(t *testing.T, shape string) {
		if shape == "" {
			return // it has no leases
		}
		_, admin := oldTable(t, shape)
		rows := lines(t, admin, rowsQuery)
		files := scan[string](t, admin, "SELECT pg_relation_filepath('worklease_leases')")
		migrate(t, admin)
		if after := lines(t, admin, rowsQuery); !slices.Equal(after, rows) {
			t.Errorf("rows are %q, were %q", after, rows)
		}
		if scan[string](t, admin, "SELECT pg_relation_filepath('worklease_leases')") != files {
			t.Error("the table was rewritten")
		}

		store, err := postgres.New(admin)
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.Acquire(t.Context(), "live", "new holder", time.Minute)
		if held, ok := errors.AsType[*backend.HeldError](err); !ok || held.HolderID != "old holder" {
			t.Errorf("acquiring the live lease gives %v, want it held by the old holder", err)
		}
		highest := scan[uint64](t, admin, "SELECT max(fencing_token) FROM worklease_leases")
		for workID, want := range map[string]backend.ExitMode{"released": backend.ExitExpired, "lapsed": backend.ExitExpired, "finished": backend.ExitFinished} {
			if workID == "finished" && shape != "exits_beside_clean_handoff" {
				continue
			}
			record, err := store.Acquire(t.Context(), workID, "new holder", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if record.FencingToken <= highest {
				t.Errorf("%s: token %d after %d", workID, record.FencingToken, highest)
			}
			highest = record.FencingToken
			prior, err := store.ReadCheckpoint(t.Context(), record)
			if err != nil || prior.PrevExit != want || prior.PrevHolderID != "old holder" {
				t.Errorf("%s: found %v of %q (%v), want %v of the old holder", workID, prior.PrevExit, prior.PrevHolderID, err, want)
			}
		}
	})
}

// A row that is forgotten before the sequence has been put above its token would take the token with it,
// and a later holder of the same work ID would get a smaller one.
func TestNothingIsForgottenBeforeTheTableIsMigrated(t *testing.T) {
	t.Parallel()
	for shape, token := range map[string]uint64{"per_row_tokens": 7, "clean_handoff": 70} {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			_, admin := oldTable(t, shape)
			store, err := postgres.New(admin)
			if err != nil {
				t.Fatal(err)
			}
			highest := backend.LeaseRecord{WorkID: "live", HolderID: "old holder", FencingToken: token}
			if err := store.Forget(t.Context(), highest); err == nil || errors.Is(err, backend.ErrFenced) {
				t.Errorf("before: got %v, want the server's error", err)
			}
			migrate(t, admin)
			if err := store.Forget(t.Context(), highest); err != nil {
				t.Errorf("afterwards: %v", err)
			}
			record, err := store.Acquire(t.Context(), "live", "new holder", time.Minute)
			if err != nil || record.FencingToken <= token {
				t.Errorf("got the token %d after %d (%v)", record.FencingToken, token, err)
			}
		})
	}
}

// A flag in the oldest table, and exit columns that somebody has added by hand and less strictly.
func TestMigrateMixedShapes(t *testing.T) {
	t.Parallel()
	_, reference := oldTable(t, "")
	exec(t, reference, postgres.Schema)
	for name, script := range map[string]string{
		"flag":     "ALTER TABLE worklease_leases ADD clean_handoff BOOLEAN NOT NULL DEFAULT false",
		"nullable": "ALTER TABLE worklease_leases ADD exit_mode TEXT, ADD prev_exit_mode TEXT, ADD prev_holder_id TEXT NOT NULL DEFAULT ''",
		"narrow": `ALTER TABLE worklease_leases ADD exit_mode TEXT
			CONSTRAINT worklease_leases_exit_mode_check CHECK (exit_mode IN ('finished', 'retired'))`,
		"no times":     "ALTER TABLE worklease_leases DROP acquired_at, DROP updated_at, DROP checkpoint",
		"lost default": "CREATE SEQUENCE worklease_fencing_seq INCREMENT BY -1; ALTER TABLE worklease_leases ALTER fencing_token DROP DEFAULT",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, admin := oldTable(t, "per_row_tokens")
			exec(t, admin, script)
			migrate(t, admin)
			got := regexp.MustCompile(`(?m)^sequence .*\n?`).ReplaceAllString(definition(t, admin), "")
			want := regexp.MustCompile(`(?m)^sequence .*\n?`).ReplaceAllString(definition(t, reference), "")
			if got != want {
				t.Errorf("the catalog has\n%s\nwant\n%s", got, want)
			}
			sequenceIsAhead(t, admin)
		})
	}
}

func TestMigrateFromManyProcessesAtOnce(t *testing.T) {
	t.Parallel()
	onOldShapes(t, func(t *testing.T, shape string) {
		dsn, admin := oldTable(t, shape)
		rows := 0
		if shape != "" {
			rows = scan[int](t, admin, "SELECT count(*) FROM worklease_leases")
		}
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range 8 {
			db := pgtest.Open(t, []string{"pq", "pgx"}[i%2], dsn)
			if err := db.Ping(); err != nil { // so that they start together
				t.Fatal(err)
			}
			all.Go(func() {
				<-start
				if err := postgres.Migrate(t.Context(), db); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		nothingLeft(t, admin)
		if got := scan[int](t, admin, "SELECT count(*) FROM worklease_leases"); got != rows {
			t.Errorf("%d rows, were %d", got, rows)
		}
		sequenceIsAhead(t, admin)
	})
}

// Until there is a table that they can use, holders get errors; from then on nothing that Migrate does
// may give them any.
func TestMigrateWhileHoldersWork(t *testing.T) {
	t.Parallel()
	onOldShapes(t, func(t *testing.T, shape string) {
		dsn, admin := oldTable(t, shape)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var (
			all    sync.WaitGroup
			usable atomic.Bool
			turns  = make(chan struct{})
		)
		usable.Store(shape == "exits_beside_clean_handoff")
		for _, driver := range []string{"pq", "pgx"} {
			store, err := postgres.New(pgtest.Open(t, driver, dsn))
			if err != nil {
				t.Fatal(err)
			}
			holder := &tenures{store: store, holder: driver}
			all.Go(func() {
				for ctx.Err() == nil {
					mustWork := usable.Load()
					if err := holder.turn(); err != nil && mustWork {
						t.Errorf("the holder with %s: %v", driver, err)
					}
					select {
					case turns <- struct{}{}:
					default:
					}
				}
			})
		}
		<-turns
		migrate(t, admin)
		usable.Store(true)
		for range 5 {
			<-turns
			exec(t, admin, "ALTER SEQUENCE worklease_fencing_seq RESTART CACHE 10")
			migrate(t, admin)
			sequenceIsAhead(t, admin)
			<-turns
			migrate(t, admin) // with nothing to do
		}
		cancel()
		all.Wait()
		nothingLeft(t, admin)
	})
}

// tenures is one lease after another of one holder, whose tokens must go up.
type tenures struct {
	store  *postgres.Backend
	holder string
	last   uint64
}

func (h *tenures) turn() error {
	ctx := context.Background()
	record, err := h.store.Acquire(ctx, "of "+h.holder, h.holder, time.Minute)
	if err != nil {
		return err
	}
	if record.FencingToken <= h.last {
		return errors.New("the token did not go up")
	}
	h.last = record.FencingToken
	return errors.Join(
		h.store.Renew(ctx, record, time.Minute),
		h.store.Checkpoint(ctx, record, []byte(strings.Repeat("x", 100)), time.Minute),
		h.store.Release(ctx, record, backend.ExitFinished))
}
