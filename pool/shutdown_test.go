package pool_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/pool"
)

// Whatever a slot is doing when ctx ends, it ends silently, and Run returns when the last function has.
func TestShutdownInEveryPhase(t *testing.T) {
	const (
		shutdown = ttl / 2 // before the attempt that hangs is given up
		drain    = 4 * ttl
	)
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.OnAcquire = func(ctx context.Context, id, holder string, ttl time.Duration) (backend.LeaseRecord, error) {
			if id == "acquiring" {
				<-ctx.Done()
				return backend.LeaseRecord{}, ctx.Err()
			}
			return s.Backend.Acquire(ctx, id, holder, ttl)
		}
		holdAll(t, s.Backend, "held")
		events := newRecorder()
		cfg := config("acquiring", "drains", "fails", "fails later", "fenced later", "gives up later", "held", "retires", "succeeds")
		cfg.Observer, cfg.RerunInterval, cfg.BackoffInterval = events, time.Hour, time.Hour
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		var drained atomic.Bool
		p := newPool(t, leaseOf(t, s, "a"), cfg, func(ctx context.Context, id string, token worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			switch id {
			case "succeeds":
				return nil, nil
			case "fails":
				return nil, errWork
			}
			awaitEnd(ctx)
			if cause := context.Cause(ctx); cause != errShutdown {
				t.Errorf("%s was told to stop by %v", id, cause)
			}
			switch id {
			case "drains":
				time.Sleep(drain)
				drained.Store(true)
				return []byte("drained"), context.Cause(ctx)
			case "fenced later":
				takeOver(t, s.Backend, token, time.Nanosecond)
				return nil, nil
			case "gives up later":
				return nil, pool.Permanent(errWork)
			case "retires":
				return []byte("done"), worklease.ErrRetire
			}
			return []byte("later"), errWork
		})
		start := time.Now()
		time.AfterFunc(shutdown, func() {
			if got, want := p.ActiveSlots(), []string{"drains", "fails later", "fenced later", "gives up later", "retires"}; !slices.Equal(got, want) {
				t.Errorf("the active slots are %q, want %q", got, want)
			}
			cancel(errShutdown)
			time.Sleep(time.Millisecond)
			if got := p.ActiveSlots(); !slices.Equal(got, []string{"drains"}) {
				t.Errorf("while it drains the active slots are %q", got)
			}
		})
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(start); took != shutdown+drain || !drained.Load() {
			t.Errorf("Run took %v, want to the end of the drain", took)
		}
		for id, want := range map[string][]string{
			"acquiring": nil, "held": nil, "succeeds": {"acquired"}, "fails": {"acquired", "backoff"},
			"drains": {"acquired"}, "fails later": {"acquired"}, "fenced later": {"acquired"},
			"gives up later": {"acquired"}, "retires": {"acquired", "retired"},
		} {
			var got []string
			for _, e := range events.of(id) {
				got = append(got, e.name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the events of the slot that %s are %v, want %v", id, got, want)
			}
		}
		wantFound(t, inherit(t, s, "drains"), "drained", worklease.ExitAbandoned)
		wantFound(t, inherit(t, s, "fails later"), "later", worklease.ExitAbandoned)
		wantFound(t, inherit(t, s, "retires"), "done", worklease.ExitRetired)
		wantFound(t, inherit(t, s, "succeeds"), "", worklease.ExitFinished)
		if got := p.ActiveSlots(); len(got) != 0 {
			t.Errorf("after Run the active slots are %q", got)
		}
	})
}

// A store that hangs keeps Run for no longer than the cleanup timeout.
func TestShutdownOfAHangingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		release := make(chan struct{})
		defer close(release)
		hang := func() error { <-release; return errStore }
		s.OnCheckpoint = func(context.Context, backend.LeaseRecord, []byte, time.Duration) error { return hang() }
		s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error { return hang() }
		cfg := config(ids(20)...)
		cfg.CleanupTimeout = 2 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := newPool(t, leaseOf(t, s, "a"), cfg, untilDone([]byte("state"), nil)).Run(ctx); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("Run took %v, want the cleanup timeout after its context", took)
		}
	})
}

func TestRunInAnEndedContextDoesNothing(t *testing.T) {
	s := newStore()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newPool(t, leaseOf(t, s, "a"), config(ids(10)...), returning(nil, nil)).Run(ctx); err != nil {
		t.Errorf("Run returned %v", err)
	}
	if n := s.Acquires.Load(); n != 0 {
		t.Errorf("there were %d attempts to acquire", n)
	}
}
