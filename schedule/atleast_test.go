package schedule_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/schedule"
)

// Two nodes tick every second, 200 ms apart, with a task of 5 ms: without AtLeastFor both run it.
func TestShortTaskRunsOnceATickOnTwoNodes(t *testing.T) {
	for _, tc := range []struct {
		atLeast time.Duration
		want    int64
	}{{500 * time.Millisecond, 60}, {0, 120}} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New()
			var runs atomic.Int64
			for i, id := range []string{"a", "b"} {
				go func() {
					s := nodeOf(t, store, id)
					time.Sleep(time.Duration(i) * 200 * time.Millisecond)
					for range 60 {
						start := time.Now()
						_, err := s.Run(t.Context(), schedule.Task{Name: name, AtMostFor: 10 * time.Second, AtLeastFor: tc.atLeast}, func(context.Context) error {
							runs.Add(1)
							time.Sleep(5 * time.Millisecond)
							return nil
						})
						if err != nil {
							t.Error(err)
						}
						time.Sleep(time.Second - time.Since(start))
					}
				}()
			}
			time.Sleep(2 * time.Minute)
			if got := runs.Load(); got != tc.want {
				t.Errorf("AtLeastFor %v: %d runs, want %d", tc.atLeast, got, tc.want)
			}
		})
	}
}

// The name stays taken whatever becomes of the run, and the caller does not wait for it.
func TestAtLeastForOutlastsEveryEnd(t *testing.T) {
	for how, fn := range map[string]func(context.Context) error{
		"success": nothing,
		"error":   returns(errWork),
		"cancel":  func(ctx context.Context) error { return context.Cause(ctx) },
		"panic":   func(context.Context) error { panic(errWork) },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				start := time.Now()
				ended := false
				func() {
					defer func() { _ = recover() }()
					callerCtx, stop := context.WithCancel(t.Context())
					defer stop()
					_, _ = nodeOf(t, store, "a").Run(callerCtx, schedule.Task{Name: name, AtMostFor: 5 * time.Second, AtLeastFor: 5 * time.Second}, func(ctx context.Context) error {
						time.Sleep(time.Millisecond)
						if how == "cancel" {
							stop()
						}
						return fn(ctx)
					})
					ended = true
				}()
				if time.Since(start) != time.Millisecond || ended != (how != "panic") {
					t.Errorf("Run took %v, returned %t", time.Since(start), ended)
				}
				time.Sleep(5*time.Second - time.Millisecond - time.Nanosecond)
				if got := probe(t, store); got != schedule.OutcomeTooSoon && (got != schedule.OutcomeHeld || how != "panic") {
					t.Errorf("just before: %v", got)
				}
				time.Sleep(time.Nanosecond)
				if got := probe(t, store); got != schedule.OutcomeRan {
					t.Errorf("when it is over: %v", got)
				}
			})
		})
	}
}

// A node that dies has nobody to release for it: the lease itself lasts as long as AtLeastFor may.
func TestAtLeastForOutlastsACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		store.release, store.renew = errStore, errStore // as if it had died
		r, err := nodeOf(t, store, "a").Run(t.Context(), schedule.Task{Name: name, AtMostFor: 10 * time.Second, AtLeastFor: 9 * time.Second}, nothing)
		if r.Outcome != schedule.OutcomeRan || !errors.Is(err, errStore) {
			t.Errorf("%v, %v", r.Outcome, err)
		}
		time.Sleep(9 * time.Second)
		if got := probe(t, store.Backend); got != schedule.OutcomeHeld {
			t.Errorf("within AtMostFor: %v", got)
		}
		time.Sleep(time.Second)
		if got := probe(t, store.Backend); got != schedule.OutcomeRan {
			t.Errorf("after AtMostFor: %v", got)
		}
	})
}

// A run longer than AtLeastFor is over when it is over.
func TestAtLeastForIsNotAddedToALongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		_, err := nodeOf(t, store, "a").Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute, AtLeastFor: time.Second}, func(context.Context) error {
			time.Sleep(2 * time.Second)
			return nil
		})
		if got := probe(t, store); err != nil || got != schedule.OutcomeRan {
			t.Errorf("%v, %v", got, err)
		}
	})
}
