package pool_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/pool"
)

// recovered runs the pool and returns what it panicked with.
func recovered(t *testing.T, p *pool.Pool) (value any) {
	t.Helper()
	defer func() { value = recover() }()
	ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
	defer cancel()
	err := p.Run(ctx)
	t.Errorf("Run returned %v", err)
	return nil
}

// breaksDown panics, or whatever f does, for the work ID "breaks"; the others work until they are told
// to stop, and need a minute for it.
func breaksDown(f func()) pool.WorkFn {
	return func(ctx context.Context, id string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
		if id == "breaks" {
			time.Sleep(3 * ttl)
			f()
		}
		awaitEnd(ctx)
		time.Sleep(time.Minute)
		return []byte("saved"), context.Cause(ctx)
	}
}

func panicsWithErrWork() { panic(errWork) }

func TestPanicEndsTheOthersAndGoesOnToTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		holdAll(t, s.Backend, "held")
		p := newPool(t, leaseOf(t, s, "a"), config("breaks", "held", "works"), breaksDown(panicsWithErrWork))
		start := time.Now()
		got := recovered(t, p)
		if err, ok := got.(error); !ok || !errors.Is(err, errWork) {
			t.Errorf("recovered %v, want an error that wraps the value", got)
		} else if text := err.Error(); !strings.Contains(text, "panicsWithErrWork") || !strings.Contains(text, `"breaks"`) {
			t.Errorf("the text names neither the slot nor where it panicked: %s", text)
		}
		if took := time.Since(start).Round(time.Second); took != 3*ttl+time.Minute {
			t.Errorf("Run took %v, want until the other slot had drained", took)
		}
		if got := p.ActiveSlots(); len(got) != 0 {
			t.Errorf("after the panic the active slots are %q", got)
		}
		wantFound(t, inherit(t, s, "works"), "saved", worklease.ExitAbandoned)
		wantFound(t, inherit(t, s, "breaks"), "", worklease.ExitExpired)
		renewals := s.Renewals.Load()
		time.Sleep(5 * ttl)
		if n := s.Renewals.Load() - renewals; n != 0 {
			t.Errorf("renewal goes on: %d calls", n)
		}
	})
}

func TestPanicWithAnyValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, leaseOf(t, newStore(), "a"), config("breaks"), breaksDown(func() { panic("a bad item") }))
		if err, ok := recovered(t, p).(error); !ok || !strings.Contains(err.Error(), "a bad item") {
			t.Errorf("recovered %v", err)
		} else if errors.Unwrap(err) != nil {
			t.Errorf("the error wraps %v", errors.Unwrap(err))
		}
	})
}

func TestGoexitEndsTheOthersAndTheGoroutineOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p := newPool(t, leaseOf(t, s, "a"), config("breaks", "works"), breaksDown(runtime.Goexit))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			err := p.Run(t.Context())
			t.Errorf("Run returned %v", err)
		}()
		<-ended
		wantFound(t, inherit(t, s, "works"), "saved", worklease.ExitAbandoned)
		wantFound(t, inherit(t, s, "breaks"), "", worklease.ExitExpired)
	})
}

// The pool can be run again after a panic that was recovered.
func TestRunAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		p := newPool(t, leaseOf(t, newStore(), "a"), config("breaks"), breaksDown(func() {
			if broken {
				broken = false
				panic(errWork)
			}
		}))
		recovered(t, p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// panickingObserver panics in the one method of its name.
type panickingObserver struct {
	pool.NoopObserver
	in string
}

func (o panickingObserver) maybe(method string) {
	if o.in == method {
		panic(errWork)
	}
}

func (o panickingObserver) OnSlotAcquired(_ context.Context, e pool.SlotAcquiredEvent) {
	if e.WorkID == "breaks" {
		time.Sleep(time.Second) // the other slot works by now
		o.maybe("OnSlotAcquired")
	}
}
func (o panickingObserver) OnSlotLost(context.Context, pool.SlotLostEvent) { o.maybe("OnSlotLost") }
func (o panickingObserver) OnSlotBackoff(context.Context, pool.SlotBackoffEvent) {
	o.maybe("OnSlotBackoff")
}
func (o panickingObserver) OnSlotDead(context.Context, pool.SlotDeadEvent) { o.maybe("OnSlotDead") }
func (o panickingObserver) OnSlotRetired(context.Context, pool.SlotRetiredEvent) {
	o.maybe("OnSlotRetired")
}

func TestPanicOfTheObserver(t *testing.T) {
	for _, tc := range []struct {
		in   string
		err  error // of the work
		exit worklease.ExitMode
	}{
		{"OnSlotAcquired", nil, worklease.ExitExpired},
		{"OnSlotLost", worklease.ErrFenced, worklease.ExitExpired},
		{"OnSlotBackoff", errWork, worklease.ExitAbandoned},
		{"OnSlotDead", pool.Permanent(errWork), worklease.ExitAbandoned},
		{"OnSlotRetired", worklease.ErrRetire, worklease.ExitRetired},
	} {
		t.Run(tc.in, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				cfg := config("breaks", "works")
				cfg.Observer = panickingObserver{in: tc.in}
				p := newPool(t, leaseOf(t, s, "a"), cfg, func(ctx context.Context, id string, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
					if id == "breaks" {
						return nil, tc.err
					}
					awaitEnd(ctx)
					time.Sleep(time.Minute)
					return []byte("saved"), nil
				})
				if err, ok := recovered(t, p).(error); !ok || !errors.Is(err, errWork) {
					t.Errorf("recovered %v", err)
				}
				time.Sleep(ttl)
				wantFound(t, inherit(t, s, "works"), "saved", worklease.ExitFinished)
				wantFound(t, inherit(t, s, "breaks"), "", tc.exit)
			})
		})
	}
}

// The final checkpoint is saved in a goroutine of its own.
func TestPanicOfTheStoreReachesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty.Store{Backend: newStore()}
		s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error { panic(errStore) }
		p := newPool(t, leaseOf(t, s, "a"), config(ids(3)...), returning(nil, nil))
		if err, ok := recovered(t, p).(error); !ok || !errors.Is(err, errStore) {
			t.Errorf("recovered %v", err)
		}
	})
}
