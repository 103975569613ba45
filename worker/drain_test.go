package worker_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/worker"
)

func TestSlowDrainKeepsItsLease(t *testing.T) {
	const (
		ttl   = 2 * time.Second
		drain = 6 * time.Second
	)
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		var drained atomic.Bool
		runner := newRunner(t, worker.RunnerConfig{
			Lease: newLease(t, s, worklease.Config{TTL: ttl, HolderID: "a"}),
			WorkFn: func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
				awaitEnd(ctx)
				if cause := context.Cause(ctx); cause != errShutdown {
					t.Errorf("the work was told to stop by %v", cause)
				}
				for range drain / (100 * time.Millisecond) {
					if deadline, ok := worklease.LeaseWindow(ctx); !ok || time.Until(deadline) < ttl/4 {
						t.Errorf("while the work drains its window is %v, closing in %v", ok, time.Until(deadline))
					}
					time.Sleep(100 * time.Millisecond)
				}
				drained.Store(true)
				return []byte("drained"), context.Cause(ctx)
			},
		})

		var next sync.WaitGroup
		var took time.Duration
		time.AfterFunc(time.Second, func() {
			cancel(errShutdown)
			start := time.Now()
			next.Go(func() {
				err := newRunner(t, worker.RunnerConfig{
					Lease: newLease(t, s.Backend, worklease.Config{TTL: ttl, HolderID: "b"}),
					WorkFn: func(_ context.Context, _ worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
						took = time.Since(start)
						if !drained.Load() {
							t.Error("the second holder began while the first one drained")
						}
						wantFound(t, prior, "drained", worklease.ExitAbandoned, "a")
						return nil, nil
					},
					AcquireOptions: []worklease.AcquireOption{
						worklease.WithWaitForLease(), worklease.WithPollInterval(50 * time.Millisecond),
					},
				}).Run(context.WithoutCancel(ctx), workID)
				wantErr(t, err)
			})
		})

		start := time.Now()
		wantErr(t, runner.Run(ctx, workID), errShutdown)
		if took := time.Since(start); took != time.Second+drain {
			t.Errorf("Run returned after %v, want at the end of the drain", took)
		}
		next.Wait()
		if took < drain || took > drain+60*time.Millisecond {
			t.Errorf("the second holder got the lease %v after the cancellation", took)
		}
	})
}

func TestCancelledRunLeavesTheLeaseFreeAtOnce(t *testing.T) {
	const ttl = 60 * time.Second
	for _, tc := range []struct {
		name string
		work worker.WorkFn
		exit worklease.ExitMode
		errs []error
	}{
		{"abandoned", stopped, worklease.ExitAbandoned, []error{context.Canceled}},
		{"finished", untilDone([]byte("new"), nil), worklease.ExitFinished, nil},
		{"retired", untilDone([]byte("new"), worklease.ErrRetire), worklease.ExitRetired, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				// A store that looks at its context, as every one does.
				s.OnRelease = func(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
					if err := ctx.Err(); err != nil {
						return err
					}
					return s.Backend.Release(ctx, record, mode)
				}
				runner := newRunner(t, worker.RunnerConfig{
					Lease: newLease(t, s, worklease.Config{TTL: ttl, HolderID: "a"}), WorkFn: tc.work,
				})
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				start := time.Now()
				wantErr(t, runner.Run(ctx, workID), tc.errs...)
				if took := time.Since(start); took != time.Second {
					t.Errorf("Run returned after %v", took)
				}
				wantFound(t, inherit(t, s), "new", tc.exit, "a")
			})
		})
	}
}

func TestRunReturnsAfterItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var working, ended atomic.Bool
		runner, _ := newHolder(t, func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			working.Store(true)
			defer ended.Store(true)
			awaitEnd(ctx)
			time.Sleep(time.Hour)
			return nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan error, 1)
		go func() { returned <- runner.Run(ctx, workID) }()
		synctest.Wait()
		if !working.Load() {
			t.Fatal("the work has not begun")
		}
		cancel()
		time.Sleep(time.Hour - time.Nanosecond)
		synctest.Wait()
		select {
		case err := <-returned:
			t.Fatalf("Run returned %v before its work did", err)
		default:
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		select {
		case err := <-returned:
			wantErr(t, err)
		default:
			t.Fatal("Run does not return although its work did")
		}
		if !ended.Load() {
			t.Error("Run returned before its work did")
		}
	})
}

func TestWorkSeesACancellationThatCameBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		runner, s := newHolder(t, func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			if cause := context.Cause(ctx); cause != errShutdown {
				t.Errorf("the work begins with the cause %v", cause)
			}
			return nil, context.Cause(ctx)
		})
		s.OnReadCheckpoint = func(ctx context.Context, record backend.LeaseRecord) (backend.Checkpoint, error) {
			defer cancel(errShutdown)
			return s.Backend.ReadCheckpoint(ctx, record)
		}
		wantErr(t, runner.Run(ctx, workID), errShutdown)
		wantFound(t, inherit(t, s), "", worklease.ExitAbandoned, "a")
	})
}

// The deadline itself is not the work's: that would promise that the lease ends with it.
func TestDeadlineOfRunReachesTheWorkAsACause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner, s := newHolder(t, func(ctx context.Context, _ worklease.Token, _ worklease.Checkpoint) ([]byte, error) {
			awaitEnd(ctx)
			if err := ctx.Err(); err != context.Canceled {
				t.Errorf("Err of the work's context = %v", err)
			}
			return []byte("new"), context.Cause(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*ttl)
		defer cancel()
		start := time.Now()
		wantErr(t, runner.Run(ctx, workID), context.DeadlineExceeded)
		if took := time.Since(start); took != 3*ttl {
			t.Errorf("Run returned after %v", took)
		}
		wantFound(t, inherit(t, s), "new", worklease.ExitAbandoned, "a")
	})
}

// registrar counts who waits for its end: a context that lives as long as the process must not collect
// what the tenures under it leave behind.
type registrar struct {
	context.Context
	done    chan struct{}
	waiting atomic.Int64
}

func (r *registrar) Done() <-chan struct{} { return r.done }

func (r *registrar) AfterFunc(func()) (stop func() bool) {
	r.waiting.Add(1)
	return sync.OnceValue(func() bool {
		r.waiting.Add(-1)
		return true
	})
}

func TestNothingIsLeftBehindInALongLivedContext(t *testing.T) {
	for _, tc := range []struct {
		name string
		work worker.WorkFn
	}{
		{"finished", returning([]byte("new"), nil)},
		{"abandoned", returning(nil, errWork)},
		{"retired", returning(nil, worklease.ErrRetire)},
		{"fenced", returning(nil, worklease.ErrFenced)},
		{"panicked", func(context.Context, worklease.Token, worklease.Checkpoint) ([]byte, error) { panic("bad item") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent := &registrar{Context: t.Context(), done: make(chan struct{})}
				var during int64
				runner, _ := newHolder(t, func(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
					during = parent.waiting.Load()
					return tc.work(ctx, token, prior)
				})
				for range 3 {
					func() {
						defer func() { _ = recover() }()
						_ = runner.Run(parent, workID)
					}()
					time.Sleep(ttl)
				}
				if during == 0 {
					t.Fatal("nothing waits for the end of ctx while the work is on")
				}
				if n := parent.waiting.Load(); n != 0 {
					t.Errorf("%d functions still wait for the end of ctx", n)
				}
			})
		})
	}
}
