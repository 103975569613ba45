package integration_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/leader"
	"github.com/aetomala/worklease/pool"
)

// times notes when things happened, for one who does them one after the other.
type times struct {
	mu sync.Mutex
	at []time.Time
}

func (s *times) note() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
}

func (s *times) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// mustPause checks that nothing came sooner than that after the one before.
func (s *times) mustPause(t *testing.T, pause time.Duration) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 1; i < len(s.at); i++ {
		if got := s.at[i].Sub(s.at[i-1]); got < pause {
			t.Errorf("%v after the one before, want %v at least", got, pause)
		}
	}
}

// attempts notes those to acquire each work ID.
type attempts struct {
	worklease.NoopObserver
	mu   sync.Mutex
	byID map[string]*times
}

func (a *attempts) OnAcquire(_ context.Context, e worklease.AcquireEvent) { a.of(e.WorkID).note() }

func (a *attempts) of(workID string) *times {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byID[workID] == nil {
		a.byID[workID] = new(times)
	}
	return a.byID[workID]
}

// A server that is away is asked no more often than the interval says, and who waits for it can be
// stopped at any time.
func TestServerThatIsAwayIsAskedNowAndThen(t *testing.T) {
	t.Parallel()
	proxy := pgtest.NewProxy(t, pgtest.Start(t).DSN())
	proxy.Refuse()
	elect := func(backoff time.Duration) func(context.Context, worklease.Lease, []string) error {
		return func(ctx context.Context, lease worklease.Lease, workIDs []string) (err error) {
			for ctx.Err() == nil {
				err = leader.Elect(ctx, lease, workIDs[0], leader.Config{IdleInterval: never, BackoffInterval: backoff}, neverBegun(t))
			}
			return err
		}
	}
	run := func(backoff time.Duration) func(context.Context, worklease.Lease, []string) error {
		return func(ctx context.Context, lease worklease.Lease, workIDs []string) error {
			return leader.Run(ctx, lease, workIDs[0], leader.Config{IdleInterval: never, BackoffInterval: backoff}, neverBegun(t))
		}
	}
	slots := func(backoff time.Duration) func(context.Context, worklease.Lease, []string) error {
		return func(ctx context.Context, lease worklease.Lease, workIDs []string) error {
			p, err := pool.New(lease, pool.Config{WorkIDs: workIDs, IdleInterval: never, RerunInterval: never, BackoffInterval: backoff},
				func(ctx context.Context, _ string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
					return nil, neverBegun(t)(ctx)
				})
			if err != nil {
				return err
			}
			return p.Run(ctx)
		}
	}
	for _, row := range []struct {
		name  string
		run   func(context.Context, worklease.Lease, []string) error
		n     int // work IDs
		pause time.Duration
		times int // that it is asked
	}{
		{"Elect", elect(300 * time.Millisecond), 1, 300 * time.Millisecond, 4},
		{"Elect without a backoff", elect(0), 1, 0, 4},
		{"Elect is stopped", elect(never), 1, never, 1},
		{"leader.Run", run(300 * time.Millisecond), 1, 300 * time.Millisecond, 4},
		{"leader.Run by default", run(0), 1, time.Second, 3},
		{"leader.Run is stopped", run(never), 1, never, 1},
		{"pool", slots(300 * time.Millisecond), 20, 300 * time.Millisecond, 4},
		{"pool by default", slots(0), 20, time.Second, 3},
		{"pool is stopped", slots(never), 20, never, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			store, _ := open(t, "pgx", proxy.DSN(), 10)
			seen := &attempts{byID: make(map[string]*times)}
			workIDs := way{n: row.n}.workIDs(row.name)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- row.run(ctx, newLease(t, store, "a", longTTL, seen), workIDs) }()
			for _, workID := range workIDs {
				await(t, "the server to be asked", func() bool { return seen.of(workID).count() >= row.times })
			}
			cancel() // in a pause, if there is one
			select {
			case <-done:
			case <-time.After(soon):
				t.Fatal("it does not end")
			}
			for _, workID := range workIDs {
				seen.of(workID).mustPause(t, row.pause)
			}
		})
	}
}

func neverBegun(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("the function was called")
		return nil
	}
}

// A function that fails at once wherever it runs does not make the lead flap.
func TestFastFailuresDoNotMakeTheLeadFlap(t *testing.T) {
	t.Parallel()
	const backoff = 300 * time.Millisecond
	for name, stand := range map[string]func(context.Context, worklease.Lease, func(context.Context) error){
		"Elect": func(ctx context.Context, lease worklease.Lease, fn func(context.Context) error) {
			for ctx.Err() == nil {
				_ = leader.Elect(ctx, lease, "flapping", leader.Config{IdleInterval: 50 * time.Millisecond, BackoffInterval: backoff}, fn)
			}
		},
		"leader.Run": func(ctx context.Context, lease worklease.Lease, fn func(context.Context) error) {
			_ = leader.Run(ctx, lease, "flapping", leader.Config{IdleInterval: 50 * time.Millisecond, BackoffInterval: backoff}, fn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, db := open(t, "pq", pgtest.Schema(t), 10)
			migrate(t, db)
			ctx, cancel := context.WithCancel(t.Context())
			var candidates sync.WaitGroup
			defer candidates.Wait()
			defer cancel()
			terms := make([]times, 3)
			for i, holder := range []string{"a", "b", "c"} {
				lease := newLease(t, store, holder, longTTL, nil)
				candidates.Go(func() {
					stand(ctx, lease, func(context.Context) error {
						terms[i].note()
						return errors.New("fails at once")
					})
				})
			}
			for i := range terms {
				await(t, "each to have led for some terms", func() bool { return terms[i].count() >= 4 })
				terms[i].mustPause(t, backoff)
			}
		})
	}
}
