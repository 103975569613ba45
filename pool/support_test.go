package pool_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/internal/tenuretest"
	"github.com/aetomala/worklease/pool"
)

const (
	ttl    = tenuretest.TTL
	workID = "report"

	// All different, so that a test can tell which one was waited for.
	idle    = 3 * time.Second
	rerun   = 5 * time.Second
	backoff = 7 * time.Second
)

var (
	errStore, errWork, errShutdown = tenuretest.ErrStore, tenuretest.ErrWork, tenuretest.ErrShutdown

	newStore = tenuretest.NewStore
	leaseOf  = tenuretest.LeaseOf
	takeOver = tenuretest.TakeOver
	recordOf = tenuretest.RecordOf
	awaitEnd = tenuretest.AwaitEnd
)

// config is that of a pool of the given work IDs, with the intervals above.
func config(workIDs ...string) pool.Config {
	return pool.Config{WorkIDs: workIDs, IdleInterval: idle, RerunInterval: rerun, BackoffInterval: backoff}
}

func newPool(t *testing.T, lease worklease.Lease, cfg pool.Config, fn pool.WorkFn) *pool.Pool {
	t.Helper()
	p, err := pool.New(lease, cfg, fn)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// runFor runs p until d has passed, and checks that Run returns nil then and not before.
func runFor(t *testing.T, p *pool.Pool, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	start := time.Now()
	if err := p.Run(ctx); err != nil {
		t.Errorf("Run returned %v", err)
	}
	if took := time.Since(start); took != d {
		t.Errorf("Run returned after %v, want when its context ends at %v", took, d)
	}
}

// ids returns n work IDs in order.
func ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("work-%04d", i)
	}
	return all
}

// holdAll makes a rival hold every one of workIDs for longer than any test takes.
func holdAll(t *testing.T, b backend.Backend, workIDs ...string) {
	t.Helper()
	for _, id := range workIDs {
		if _, err := b.Acquire(t.Context(), id, "rival", 1000*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
}

// inherit acquires id at once, past any fault, and returns what a successor finds.
func inherit(t *testing.T, s *faulty.Store, id string) backend.Checkpoint {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	record, err := s.Backend.Acquire(ctx, id, "successor", ttl)
	if err != nil {
		t.Fatalf("the successor does not get %s at once: %v", id, err)
	}
	found, err := s.Backend.ReadCheckpoint(ctx, record)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantFound checks what a successor finds.
func wantFound(t *testing.T, found backend.Checkpoint, state string, exit worklease.ExitMode) {
	t.Helper()
	if string(found.State) != state || found.PrevExit != exit {
		t.Errorf("the successor finds %q, %v, want %q, %v", found.State, found.PrevExit, state, exit)
	}
}

func returning(state []byte, err error) pool.WorkFn {
	return func(context.Context, string, worklease.Token, worklease.Checkpoint) ([]byte, error) {
		return state, err
	}
}

// untilDone works until it is told to stop.
func untilDone(state []byte, err error) pool.WorkFn {
	return func(ctx context.Context, _ string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
		awaitEnd(ctx)
		return state, err
	}
}

// recorder is an Observer that writes down what it is told, and when.
type recorder struct {
	mu     sync.Mutex
	start  time.Time
	events []event
}

type event struct {
	name, workID string
	at           time.Duration
	err          error
	wait         time.Duration
}

var _ pool.Observer = (*recorder)(nil)

func newRecorder() *recorder { return &recorder{start: time.Now()} }

func (r *recorder) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.at = time.Since(r.start)
	r.events = append(r.events, e)
}

func (r *recorder) OnSlotAcquired(_ context.Context, e pool.SlotAcquiredEvent) {
	r.add(event{name: "acquired", workID: e.WorkID})
}

func (r *recorder) OnSlotLost(_ context.Context, e pool.SlotLostEvent) {
	r.add(event{name: "lost", workID: e.WorkID})
}

func (r *recorder) OnSlotBackoff(_ context.Context, e pool.SlotBackoffEvent) {
	r.add(event{name: "backoff", workID: e.WorkID, err: e.Err, wait: e.Duration})
}

func (r *recorder) OnSlotDead(_ context.Context, e pool.SlotDeadEvent) {
	r.add(event{name: "dead", workID: e.WorkID, err: e.Err})
}

func (r *recorder) OnSlotRetired(_ context.Context, e pool.SlotRetiredEvent) {
	r.add(event{name: "retired", workID: e.WorkID})
}

// of returns the events of one work ID.
func (r *recorder) of(workID string) []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.events), func(e event) bool { return e.workID != workID })
}

// wantEvents checks the names of the events of workID.
func (r *recorder) wantEvents(t *testing.T, names ...string) {
	t.Helper()
	var got []string
	for _, e := range r.of(workID) {
		got = append(got, e.name)
	}
	if !slices.Equal(got, names) {
		t.Errorf("the events are %v, want %v", got, names)
	}
}
