package integration_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/pool"
)

// Who is told to stop makes room at once for who waits, whatever the TTL, and leaves the exit that its
// work has had.
func TestShutdownMakesRoomForTheNext(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Schema(t)
	store, db := open(t, "pq", dsn, 10)
	migrate(t, db)
	rivals, _ := open(t, "pgx", dsn, 10)
	for _, way := range ways {
		for exit, result := range map[worklease.ExitMode]error{
			worklease.ExitAbandoned: context.Canceled, worklease.ExitFinished: nil, worklease.ExitRetired: worklease.ErrRetire,
		} {
			t.Run(way.name+", "+exit.String(), func(t *testing.T) {
				t.Parallel()
				workIDs := way.workIDs(exit.String())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var begun, left atomic.Int64
				working, waiting := make(chan struct{}), make(chan struct{})
				done := make(chan error, 1)
				go func() {
					done <- way.run(ctx, t, newLease(t, store, "a", longTTL, nil), workIDs, time.Minute, func(ctx context.Context) error {
						if begun.Add(1) == int64(way.n) {
							close(working)
						}
						<-ctx.Done()
						left.Add(1)
						return result
					})
				}()
				select {
				case <-working:
				case err := <-done:
					t.Fatal(err)
				}
				seen := &firstRefusal{refused: waiting}
				rival := newLease(t, rivals, "b", longTTL, seen)
				patient, enough := context.WithTimeout(t.Context(), time.Minute)
				defer enough()
				go func() {
					<-waiting
					cancel()
				}()
				for _, workID := range workIDs {
					token, err := rival.Acquire(patient, workID, worklease.WithWaitForLease(), worklease.WithPollInterval(20*time.Millisecond))
					if err != nil {
						t.Fatal(err)
					}
					if left.Load() == 0 {
						t.Error("the lease was free before the work had ended")
					}
					if found, err := rival.ReadCheckpoint(patient, token); err != nil || found.PrevExit != exit || found.PrevHolderID != "a" {
						t.Errorf("%s: found %v by %q, %v", workID, found.PrevExit, found.PrevHolderID, err)
					}
				}
				err := <-done
				if want := exit == worklease.ExitAbandoned && !way.ends; errors.Is(err, context.Canceled) != want || !want && err != nil {
					t.Errorf("it returned %v", err)
				}
			})
		}
	}
}

// firstRefusal closes a channel when an attempt was refused for the first time.
type firstRefusal struct {
	worklease.NoopObserver
	once    sync.Once
	refused chan struct{}
}

func (f *firstRefusal) OnAcquire(_ context.Context, e worklease.AcquireEvent) {
	if errors.Is(e.Err, worklease.ErrLeaseHeld) {
		f.once.Do(func() { close(f.refused) })
	}
}

// A network that has gone silent keeps nobody from ending for longer than the cleanup timeout.
func TestShutdownOnASilentNetwork(t *testing.T) {
	t.Parallel()
	const cleanup = time.Second
	for _, driver := range []string{"pq", "pgx"} {
		for _, way := range ways {
			t.Run(way.name+" by "+driver, func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.Schema(t)
				_, db := open(t, "pgx", dsn, 1)
				migrate(t, db)
				proxy := pgtest.NewProxy(t, dsn)
				store, _ := open(t, driver, proxy.DSN(), 10)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var begun atomic.Int64
				var frozen time.Time
				err := way.run(ctx, t, newLease(t, store, "a", longTTL, nil), way.workIDs("silent"), cleanup, func(ctx context.Context) error {
					if begun.Add(1) == int64(way.n) {
						proxy.Freeze()
						frozen = time.Now()
						cancel()
					}
					<-ctx.Done()
					return context.Cause(ctx)
				})
				took := time.Since(frozen) // the network is silent still
				proxy.Thaw()
				t.Logf("it returned after %v: %v", took.Round(time.Millisecond), err)
				if took > cleanup+soon {
					t.Errorf("it returned after %v", took)
				}
				if way.ends {
					if err != nil {
						t.Error(err)
					}
				} else if !errors.Is(err, context.Canceled) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it returned %v", err)
				}
			})
		}
	}
}

// Whatever a slot does when the pool is told to end, Run returns after the last function and no earlier.
func TestPoolEndsInEveryPhase(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pq", "pgx"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Schema(t)
			store, db := open(t, driver, dsn, 10)
			migrate(t, db)
			_, admin := open(t, "pgx", dsn, 2)
			if _, err := store.Acquire(t.Context(), "held", "rival", longTTL); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Acquire(t.Context(), "acquiring", "rival", -time.Second); err != nil {
				t.Fatal(err)
			}
			tx, err := admin.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(t.Context(), "SELECT FROM worklease_leases WHERE work_id = 'acquiring' FOR UPDATE"); err != nil {
				t.Fatal(err)
			}

			seen, drain := &phases{refused: make(chan struct{})}, make(chan struct{})
			var drained atomic.Bool
			// One that cannot look, so that a refusal tells when the slot of "held" is idle.
			p, err := pool.New(newLease(t, bare{store}, "a", longTTL, &firstRefusal{refused: seen.refused}), pool.Config{
				WorkIDs:      []string{"acquiring", "drains", "fails", "held", "succeeds", "works"},
				IdleInterval: never, RerunInterval: never, BackoffInterval: never, CleanupTimeout: time.Minute, Observer: seen,
			}, func(ctx context.Context, workID string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
				switch workID {
				case "succeeds":
					seen.succeeded.Store(true)
					return nil, nil
				case "fails":
					return nil, errWork
				}
				<-ctx.Done()
				if workID == "drains" {
					<-drain
					drained.Store(true)
				}
				return []byte(workID), context.Cause(ctx)
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()
			<-seen.refused
			awaitBlocked(t, admin)
			await(t, "each slot to be where it is to be", func() bool {
				return seen.failed.Load() && seen.succeeded.Load() && slices.Equal(p.ActiveSlots(), []string{"drains", "works"})
			})
			cancel()
			await(t, "all slots to end but one", func() bool { return slices.Equal(p.ActiveSlots(), []string{"drains"}) })
			select {
			case err := <-done:
				t.Fatalf("Run returned %v while a function runs", err)
			case <-time.After(100 * time.Millisecond): // one that is wrong has had the time
			}
			close(drain)
			if err := <-done; err != nil || !drained.Load() {
				t.Errorf("Run returned %v, and the function had ended: %v", err, drained.Load())
			}
			for workID, exit := range map[string]worklease.ExitMode{
				"drains": worklease.ExitAbandoned, "works": worklease.ExitAbandoned,
				"fails": worklease.ExitAbandoned, "succeeds": worklease.ExitFinished,
			} {
				record, err := store.Acquire(t.Context(), workID, "b", longTTL)
				if err != nil {
					t.Fatal(err)
				}
				if found, err := store.ReadCheckpoint(t.Context(), record); err != nil || found.PrevExit != exit || found.PrevHolderID != "a" {
					t.Errorf("%s: found %v by %q, %v", workID, found.PrevExit, found.PrevHolderID, err)
				}
			}
		})
	}
}

// phases is how far the slots of a pool have come.
type phases struct {
	pool.NoopObserver
	refused           chan struct{}
	succeeded, failed atomic.Bool
}

func (p *phases) OnSlotBackoff(_ context.Context, e pool.SlotBackoffEvent) {
	p.failed.Store(e.WorkID == "fails")
}
