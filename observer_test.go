package worklease_test

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
)

func TestObserverIsToldOfEveryCallInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		slow := func() { time.Sleep(time.Second) }
		s.OnAcquire = func(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
			slow()
			return s.Backend.Acquire(ctx, workID, holderID, ttl)
		}
		s.OnCheckpoint = func(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
			slow()
			return s.Backend.Checkpoint(ctx, record, state, ttl)
		}
		seen := &recorder{}
		ctx := t.Context()
		lease := newObserved(t, s, "a", time.Hour, seen)
		token := acquire(t, lease, "w")
		_, held := lease.Acquire(ctx, "w")
		for _, err := range []error{
			lease.Checkpoint(ctx, token, []byte("12345")),
			lease.Renew(ctx, token),
			lease.Release(ctx, token, worklease.ExitAbandoned),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		expired := lease.Renew(ctx, token)
		if _, err := lease.ReadCheckpoint(ctx, token); err != nil {
			t.Fatal(err)
		}
		if err := lease.Forget(ctx, token); err != nil {
			t.Fatal(err)
		}
		second := acquire(t, lease, "w")

		want := []any{
			worklease.AcquireEvent{WorkID: "w", Token: token, Duration: time.Second},
			worklease.AcquireEvent{WorkID: "w", Duration: time.Second, Err: held},
			worklease.CheckpointEvent{Token: token, Size: 5, Duration: time.Second},
			worklease.RenewEvent{Token: token, Attempt: 1},
			worklease.ReleaseEvent{Token: token, Mode: worklease.ExitAbandoned},
			worklease.RenewEvent{Token: token, Attempt: 1, Err: expired},
			worklease.ReadCheckpointEvent{Token: token, Size: 5},
			worklease.ForgetEvent{Token: token},
			worklease.AcquireEvent{WorkID: "w", Token: second, Duration: time.Second},
		}
		if got := seen.all(); !reflect.DeepEqual(got, want) {
			t.Errorf("the observer saw\n%v\nwant\n%v", got, want)
		}
	})
}

func TestFencedOperationsAreReportedAfterTheirOwnEvent(t *testing.T) {
	b := memory.New()
	seen := &recorder{}
	lease := newObserved(t, b, "a", time.Hour, seen)
	zombie := acquire(t, lease, "w")
	if err := lease.Release(t.Context(), zombie, worklease.ExitRetired); err != nil {
		t.Fatal(err)
	}
	acquire(t, newLease(t, b, "b", time.Hour), "w")
	before := len(seen.all())

	_, read := lease.ReadCheckpoint(t.Context(), zombie)
	checkpoint := lease.Checkpoint(t.Context(), zombie, nil)
	renew := lease.Renew(t.Context(), zombie)
	release := lease.Release(t.Context(), zombie, worklease.ExitFinished)
	forget := lease.Forget(t.Context(), zombie)
	fenced := func(op worklease.Operation) any { return worklease.FencedEvent{Token: zombie, Operation: op} }
	want := []any{
		worklease.ReadCheckpointEvent{Token: zombie, Err: read},
		worklease.CheckpointEvent{Token: zombie, Err: checkpoint}, fenced(worklease.OperationCheckpoint),
		worklease.RenewEvent{Token: zombie, Attempt: 1, Err: renew}, fenced(worklease.OperationRenew),
		worklease.ReleaseEvent{Token: zombie, Mode: worklease.ExitFinished, Err: release}, fenced(worklease.OperationRelease),
		worklease.ForgetEvent{Token: zombie, Err: forget}, fenced(worklease.OperationForget),
	}
	for _, err := range []error{read, checkpoint, renew, release, forget} {
		mustMatch(t, err, worklease.ErrFenced)
	}
	got := seen.all()[before:]
	for i := range got {
		v := reflect.New(reflect.TypeOf(got[i])).Elem()
		v.Set(reflect.ValueOf(got[i]))
		if d := v.FieldByName("Duration"); d.IsValid() {
			d.SetInt(0)
		}
		got[i] = v.Interface()
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the observer saw\n%v\nwant\n%v", got, want)
	}
}

func TestOperationsPrintAsTheirMethods(t *testing.T) {
	for op, want := range map[worklease.Operation]string{
		worklease.OperationCheckpoint: "Checkpoint", worklease.OperationRenew: "Renew",
		worklease.OperationRelease: "Release", worklease.OperationForget: "Forget",
		0: "Operation(0)", 9: "Operation(9)",
	} {
		if got := fmt.Sprint(op); got != want {
			t.Errorf("prints as %s, want %s", got, want)
		}
	}
}

func TestNoopObserversIgnoreEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := newObserved(t, memory.New(), "a", 10*time.Second, struct{ worklease.NoopObserver }{})
		ctx := t.Context()
		token := acquire(t, lease, "w")
		_, stop := lease.StartRenewal(ctx, token)
		time.Sleep(20 * time.Second)
		stop()
		_, read := lease.ReadCheckpoint(ctx, token)
		for _, err := range []error{
			lease.Checkpoint(ctx, token, nil), read, lease.Release(ctx, token, worklease.ExitFinished), lease.Forget(ctx, token),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		mustMatch(t, lease.Renew(ctx, token), worklease.ErrFenced)
	})
}

// onRenew is an observer that does something of its own at each renewal.
type onRenew struct {
	worklease.NoopObserver
	f func()
}

func (o onRenew) OnRenew(context.Context, worklease.RenewEvent) { o.f() }

func TestObserverThatBreaksInBackgroundRenewalTakesTheWorkWithIt(t *testing.T) {
	for name, f := range map[string]func(){
		"panic":  func() { panic("boom") },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var brokeAt time.Time
				calls := 0
				lease := newObserved(t, memory.New(), "a", 10*time.Second, onRenew{f: func() {
					brokeAt, calls = time.Now(), calls+1
					f()
				}})
				token := acquire(t, lease, "w")
				renewCtx, stop := lease.StartRenewal(t.Context(), token)
				<-renewCtx.Done()
				mustEnd(t, renewCtx, brokeAt, worklease.ErrLeaseWindowExhausted)
				if _, ok := worklease.LeaseWindow(renewCtx); ok {
					t.Error("there is a window, and nobody renews")
				}
				time.Sleep(time.Minute)
				if calls != 1 {
					t.Errorf("%d renewals", calls)
				}
				stop()
			})
		})
	}
	t.Run("block", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			blocked := make(chan struct{})
			seen := &attempts{}
			lease := newObserved(t, memory.New(), "a", 10*time.Second, onRenew{f: func() {
				seen.begin()
				<-blocked
			}})
			renewCtx, stop := lease.StartRenewal(t.Context(), acquire(t, lease, "w"))
			<-renewCtx.Done()
			renewals := seen.began()
			mustEnd(t, renewCtx, renewals[len(renewals)-1].Add(10*time.Second), worklease.ErrLeaseWindowExhausted)
			if len(renewals) > 3 {
				t.Errorf("%d calls of an observer that blocks", len(renewals))
			}
			stop()
			close(blocked)
		})
	})
}

func TestPanicOfAnObserverInACallGoesUpToTheCaller(t *testing.T) {
	lease := newObserved(t, memory.New(), "a", time.Hour, onRenew{f: func() { panic("boom") }})
	token := acquire(t, lease, "w")
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("recovered %v", p)
			}
		}()
		_ = lease.Renew(t.Context(), token)
	}()
	if err := lease.Release(t.Context(), token, worklease.ExitFinished); err != nil {
		t.Errorf("the lease cannot be used after the panic: %v", err)
	}
}
