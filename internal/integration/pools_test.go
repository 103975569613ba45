package integration_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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

// calls counts those of a pool that wants what another has, and nothing else.
type calls struct {
	backend.Backend
	looks, attempts atomic.Int64
}

func (c *calls) Free(ctx context.Context, workIDs []string) ([]string, error) {
	c.looks.Add(1)
	return c.Backend.(backend.Looker).Free(ctx, workIDs)
}

func (c *calls) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	c.attempts.Add(1)
	return c.Backend.Acquire(ctx, workID, holderID, ttl)
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
	start := func(holder, driver string) (p *pool.Pool, made *calls, stop func()) {
		store, _ := open(t, driver, dsn, conns)
		made = &calls{Backend: store}
		lease := newLease(t, made, holder, longTTL, nil)
		p, err := pool.New(lease, pool.Config{
			WorkIDs: workIDs, IdleInterval: idle, CleanupTimeout: time.Minute,
		}, books.work(t, holder, lease))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		return p, made, sync.OnceFunc(func() {
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
	first, _, stopFirst := start("first", "pgx")
	defer stopFirst()
	await(t, "the first pool to work on everything", hasAll(first))
	t.Logf("%d of %d slots are active after %v", n, n, time.Since(began).Round(time.Millisecond)) // aim: 3 s

	second, made, stopSecond := start("second", "pq")
	defer stopSecond()
	await(t, "the second pool to look for work three times", func() bool { return made.looks.Load() >= 3 })
	if tried := made.attempts.Load(); tried != 0 {
		t.Errorf("nothing is free, and the second pool made %d attempts", tried)
	}
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

// bare has nothing beyond what each store has.
type bare struct{ backend.Backend }

// What 1,000 work IDs that another has cost a process: one statement in an idle interval, against one for
// each of them.
func TestPoolWithNothingFreeCostsOneStatementAnInterval(t *testing.T) {
	t.Parallel()
	const n, idle, intervals = 1000, time.Second, 4
	dsn := pgtest.Schema(t)
	store, db := open(t, "pgx", dsn, 4)
	migrate(t, db)
	if _, err := db.ExecContext(t.Context(), `INSERT INTO worklease_leases (work_id, holder_id, expires_at)
		SELECT 'work-' || i, 'rival', now() + interval '1 day' FROM generate_series(0, $1::int - 1) AS i`, n); err != nil {
		t.Fatal(err)
	}
	workIDs := make([]string, n)
	for i := range workIDs {
		workIDs[i] = fmt.Sprint("work-", i)
	}
	for _, row := range []struct {
		name        string
		hide        bool
		least, most float64 // statements in an interval
	}{
		// On a busy machine there may be fewer than are due, but never more; the first look is one too many.
		{"with looks", false, 0.2, 1 + 1/float64(intervals)},
		{"with attempts", true, 20, n},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			proxy := pgtest.NewProxy(t, dsn)
			through, db := open(t, "pgx-exec", proxy.DSN(), 4)
			if err := db.PingContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if row.hide {
				through = bare{through}
			}
			p, err := pool.New(newLease(t, through, row.name, longTTL, nil), pool.Config{WorkIDs: workIDs, IdleInterval: idle},
				func(context.Context, string, worklease.Token, worklease.Checkpoint) ([]byte, error) {
					t.Error("the function was called")
					return nil, nil
				})
			if err != nil {
				t.Fatal(err)
			}
			proxy.ResetTraffic()
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), intervals*idle)
			defer cancel()
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
			took := float64(time.Since(began)) / float64(idle)
			sent := proxy.Traffic().Count('E') // Execute
			each := float64(sent) / took
			t.Logf("%d statements in %.1f intervals", sent, took)
			if each < row.least || each > row.most {
				t.Errorf("%.2f statements in an interval, want %v to %v", each, row.least, row.most)
			}
		})
	}
	if free, err := store.(backend.Looker).Free(t.Context(), workIDs); err != nil || len(free) > 0 {
		t.Errorf("%q are free, %v", free, err)
	}
}
