package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/pool"
)

// longTTL is so long that a lease which is taken over within a test must have been released.
const longTTL = 10 * time.Minute

// open returns the PostgreSQL store by a pool of at most n connections.
func open(t *testing.T, driver, dsn string, n int) (backend.Backend, *sql.DB) {
	t.Helper()
	db := pgtest.Open(t, driver, dsn)
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	store, err := postgres.New(db)
	if err != nil {
		t.Fatal(err)
	}
	return store, db
}

func newLease(t *testing.T, store backend.Backend, holder string, ttl time.Duration, observer worklease.LeaseObserver) worklease.Lease {
	t.Helper()
	lease, err := worklease.New(store, worklease.Config{TTL: ttl, HolderID: holder, Observer: observer})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// ledger is what the work of all pools has written, and who does it.
type ledger struct {
	mu      sync.Mutex
	running map[string]string // the holder
	written map[string]int
	begun   map[string]int // by holder
}

// work writes one checkpoint as it begins, and another as it is told to end.
func (l *ledger) work(t *testing.T, holder string, lease worklease.Lease) pool.WorkFn {
	return func(ctx context.Context, workID string, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
		l.begin(t, holder, workID, string(prior.State))
		// One that the shutdown cut off might still arrive, after the final state even.
		if err := lease.Checkpoint(context.WithoutCancel(ctx), token, l.next(workID)); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		defer l.end(workID)
		return l.next(workID), context.Cause(ctx)
	}
}

func (l *ledger) begin(t *testing.T, holder, workID, found string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, ok := l.running[workID]; ok {
		t.Errorf("%s runs in %s, and in %s too", workID, other, holder)
	}
	if want := l.last(workID); found != want {
		t.Errorf("%s resumes %s at %q, want %q", holder, workID, found, want)
	}
	l.running[workID] = holder
	l.begun[holder]++
}

func (l *ledger) end(workID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, workID)
}

func (l *ledger) next(workID string) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[workID]++
	return []byte(l.last(workID))
}

// last returns the state that was written last.
func (l *ledger) last(workID string) string {
	if l.written[workID] == 0 {
		return ""
	}
	return strconv.Itoa(l.written[workID])
}

// of returns how many runs a holder has begun.
func (l *ledger) of(holder string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun[holder]
}

// refusals counts the attempts for work that another holds.
type refusals struct {
	worklease.NoopObserver
	mu   sync.Mutex
	byID map[string]int
}

func (r *refusals) OnAcquire(_ context.Context, e worklease.AcquireEvent) {
	if !errors.Is(e.Err, worklease.ErrLeaseHeld) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[e.WorkID]++
}

func (r *refusals) ids() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byID)
}

// The first of two pools takes everything and the second gets nothing, until the first stops: then the
// second has all of it soon, with nothing lost and nothing done twice.
func TestPoolOfManyIDsIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	const n, conns, idle = 300, 10, time.Second
	dsn := pgtest.Schema(t)
	workIDs := make([]string, n)
	for i := range workIDs {
		workIDs[i] = fmt.Sprintf("work-%03d", i)
	}
	books := &ledger{running: make(map[string]string), written: make(map[string]int), begun: make(map[string]int)}
	start := func(holder, driver string, observer worklease.LeaseObserver) (p *pool.Pool, stop func()) {
		store, _ := open(t, driver, dsn, conns)
		lease := newLease(t, store, holder, longTTL, observer)
		p, err := pool.New(lease, pool.Config{
			WorkIDs: workIDs, IdleInterval: idle, CleanupTimeout: time.Minute,
		}, books.work(t, holder, lease))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		return p, sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run of %s: %v", holder, err)
			}
		})
	}
	hasAll := func(p *pool.Pool) func() bool {
		return func() bool { return len(p.ActiveSlots()) == n }
	}
	store, db := open(t, "pgx", dsn, conns)
	migrate(t, db)

	began := time.Now()
	first, stopFirst := start("first", "pgx", nil)
	defer stopFirst()
	await(t, "the first pool to work on everything", hasAll(first))
	t.Logf("%d of %d slots are active after %v", n, n, time.Since(began).Round(time.Millisecond)) // aim: 3 s

	seen := &refusals{byID: make(map[string]int)}
	second, stopSecond := start("second", "pq", seen)
	defer stopSecond()
	await(t, "the second pool to ask for everything", func() bool { return seen.ids() == n })
	if got := first.ActiveSlots(); !slices.Equal(got, workIDs) || books.of("second") != 0 {
		t.Errorf("the first has %d of %d slots still, and the second began %d times", len(got), n, books.of("second"))
	}

	stopping := time.Now()
	stopFirst()
	returned := time.Now()
	await(t, "the second pool to work on everything", hasAll(second))
	// Aim: 1.2 times the idle interval.
	t.Logf("the first took %v to stop, and the second had everything %v later",
		returned.Sub(stopping).Round(time.Millisecond), time.Since(returned).Round(time.Millisecond))
	stopSecond()

	if books.begun["first"] != n || books.begun["second"] != n {
		t.Errorf("%v runs, want %d of each", books.begun, n)
	}
	for _, workID := range workIDs {
		record, err := store.Acquire(t.Context(), workID, "third", longTTL)
		if err != nil {
			t.Fatal(err)
		}
		found, err := store.ReadCheckpoint(t.Context(), record)
		if err != nil || string(found.State) != books.last(workID) || found.PrevExit != worklease.ExitAbandoned || found.PrevHolderID != "second" {
			t.Errorf("%s: found %q, %v by %q, %v, want %q", workID, found.State, found.PrevExit, found.PrevHolderID, err, books.last(workID))
		}
	}
}
