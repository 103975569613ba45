package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/leader"
	"github.com/aetomala/worklease/pool"
)

// class is what somebody does who sorts errors without reading them.
func class(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, worklease.ErrLeaseHeld):
		return "contention"
	case errors.Is(err, worklease.ErrFenced), errors.Is(err, worklease.ErrLeaseWindowExhausted), errors.Is(err, worklease.ErrLeaseExpired):
		return "loss"
	case errors.Is(err, context.Canceled):
		return "cancel"
	}
	return "fault"
}

// classes are those of the errors that an observer was told of.
type classes struct {
	worklease.NoopObserver
	mu   sync.Mutex
	seen map[string]bool
}

func (c *classes) note(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[what+" "+class(err)] = true
}

func (c *classes) has(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[what]
}

func (c *classes) besides(known ...string) (others []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for what := range c.seen {
		if !slices.Contains(known, what) {
			others = append(others, what)
		}
	}
	return others
}

func (c *classes) OnAcquire(_ context.Context, e worklease.AcquireEvent) { c.note("acquire", e.Err) }

// An attempt that was given up says that it was cancelled, which it was. That there was more than one is
// what tells of trouble.
func (c *classes) OnRenew(_ context.Context, e worklease.RenewEvent) {
	if e.Attempt > 1 {
		c.note("renew again", nil)
	}
}

// slotClasses is where a pool tells them.
type slotClasses struct {
	pool.NoopObserver
	to *classes
}

func (s slotClasses) OnSlotBackoff(_ context.Context, e pool.SlotBackoffEvent) {
	s.to.note("pause", e.Err)
}

// The observers of a lease, of a leader and of a pool tell contention, an end, a loss and a fault apart,
// and make no noise about the first two.
func TestObserversTellWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		params  string
		ttl     time.Duration
		prepare func(t *testing.T, store backend.Backend, admin *sql.DB, workID string)
		work    func(ctx context.Context, t *testing.T, db *sql.DB) // nil: it is never begun
		seen    string                                              // by the lease's observer
		pause   string                                              // by the others; empty: nothing
	}{
		{name: "held", ttl: longTTL, seen: "acquire contention",
			prepare: func(t *testing.T, store backend.Backend, _ *sql.DB, workID string) {
				if _, err := store.Acquire(t.Context(), workID, "rival", longTTL); err != nil {
					t.Error(err)
				}
			}},
		{name: "cancelled", ttl: longTTL, seen: "acquire cancel",
			prepare: func(t *testing.T, store backend.Backend, admin *sql.DB, workID string) {
				if _, err := store.Acquire(t.Context(), workID, "rival", -time.Second); err != nil {
					t.Error(err)
				}
				tx, err := admin.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback() })
				if _, err := tx.ExecContext(t.Context(), "SELECT FROM worklease_leases FOR UPDATE"); err != nil {
					t.Error(err)
				}
			}},
		{name: "read-only", ttl: longTTL, params: "default_transaction_read_only=on", seen: "acquire fault", pause: "pause fault"},
		{name: "pool exhausted", ttl: shortTTL, seen: "renew again ok", pause: "pause loss",
			work: func(ctx context.Context, t *testing.T, db *sql.DB) {
				conn, err := db.Conn(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				<-ctx.Done()
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			}},
	} {
		for _, by := range []string{"leader", "pool"} {
			t.Run(row.name+", "+by, func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.Schema(t)
				free, admin := open(t, "pgx", dsn, 2)
				migrate(t, admin)
				if row.params != "" {
					dsn = pgtest.WithParams(dsn, row.params)
				}
				store, db := open(t, "pq", dsn, 1)
				if row.prepare != nil {
					row.prepare(t, free, admin, "w")
				}
				seen := &classes{seen: make(map[string]bool)}
				work := func(ctx context.Context) error {
					if row.work == nil {
						return neverBegun(t)(ctx)
					}
					row.work(ctx, t, db)
					return context.Cause(ctx)
				}
				// Of a store that cannot look, so that what is held is asked for.
				lease := newLease(t, bare{store}, "a", row.ttl, seen)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() {
					if by == "leader" {
						done <- leader.Run(ctx, lease, "w", leader.Config{
							OnError: func(_ context.Context, err error) { seen.note("pause", err) },
						}, work)
						return
					}
					p, err := pool.New(lease, pool.Config{WorkIDs: []string{"w"}, Observer: slotClasses{to: seen}},
						func(ctx context.Context, _ string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
							return nil, work(ctx)
						})
					if err != nil {
						t.Error(err)
					}
					done <- p.Run(ctx)
				}()
				if row.seen == "acquire cancel" {
					awaitBlocked(t, admin)
					cancel()
				}
				await(t, row.seen, func() bool { return seen.has(row.seen) })
				if row.pause != "" {
					await(t, row.pause, func() bool { return seen.has(row.pause) })
				}
				cancel()
				if err := <-done; by == "pool" && err != nil || by == "leader" && !errors.Is(err, context.Canceled) {
					t.Errorf("Run returned %v", err)
				}
				if others := seen.besides(row.seen, row.pause, "acquire ok", "acquire cancel"); len(others) != 0 {
					t.Errorf("there was also: %q", others)
				}
			})
		}
	}
}
