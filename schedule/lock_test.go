package schedule_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/schedule"
)

func TestLockTellsHeldFromTrouble(t *testing.T) {
	store := newFaulty()
	task := schedule.Task{Name: name, AtMostFor: time.Minute}
	lock, err := nodeOf(t, store, "a").Lock(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	if token, ok := schedule.Held(lock.Context()); !ok || token != lock.Token() {
		t.Errorf("held = %v, %t", token, ok)
	}
	b := nodeOf(t, store, "b")
	second, err := b.Lock(t.Context(), task)
	if by, ok := errors.AsType[*worklease.HeldError](err); second != nil || !ok || by.HolderID != "a" {
		t.Errorf("second lock = %v, %v", second, err)
	}
	store.acquire = errStore
	if third, err := b.Lock(t.Context(), task); third != nil || !errors.Is(err, errStore) || errors.Is(err, worklease.ErrLeaseHeld) {
		t.Errorf("lock without a store = %v, %v", third, err)
	}
	store.acquire = nil
	if slotted, err := b.Lock(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute, Slot: time.Now()}); slotted != nil || !errors.Is(err, schedule.ErrTaskInvalid) {
		t.Errorf("lock with a slot = %v, %v", slotted, err)
	}
	if err := lock.Unlock(t.Context()); err != nil || lock.Context().Err() == nil {
		t.Errorf("unlock: %v, context: %v", err, lock.Context().Err())
	}
	if got := probe(t, store); got != schedule.OutcomeRan {
		t.Errorf("afterwards: %v", got)
	}
}

// A pauses past its time and B takes over: whatever A does then leaves B's row alone.
func TestLateUnlockFreesNobodyElsesLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		task := schedule.Task{Name: name, AtMostFor: 10 * time.Second, NoKeepAlive: true}
		a, err := nodeOf(t, store, "same").Lock(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		<-a.Context().Done()
		if err := a.Unlock(t.Context()); !errors.Is(err, worklease.ErrLeaseExpired) {
			t.Errorf("unlock of what has lapsed: %v", err)
		}
		b, err := nodeOf(t, store, "same").Lock(t.Context(), task) // not even the holder's name is another
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Unlock(t.Context()); !errors.Is(err, worklease.ErrFenced) {
			t.Errorf("late unlock: %v", err)
		}
		if err := a.Extend(t.Context(), time.Minute, 0); !errors.Is(err, worklease.ErrLeaseExpired) {
			t.Errorf("late extension: %v", err)
		}
		record := backend.LeaseRecord{WorkID: name, HolderID: "same", FencingToken: a.Token().FencingToken()}
		if err := store.Forget(t.Context(), record); !errors.Is(err, worklease.ErrFenced) {
			t.Errorf("late forget: %v", err)
		}
		if got := probe(t, store); got != schedule.OutcomeHeld {
			t.Errorf("B's lock: %v", got)
		}
		if err := b.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLockIsKeptUntilItIsUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		ctx, cancel := context.WithCancel(t.Context())
		lock, err := nodeOf(t, store, "a").Lock(ctx, schedule.Task{Name: name, AtMostFor: 10 * time.Second, AtLeastFor: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		cancel() // bounds the call alone
		time.Sleep(time.Minute)
		if err := lock.Extend(t.Context(), 20*time.Second, 15*time.Second); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if got := probe(t, store); got != schedule.OutcomeHeld || lock.Context().Err() != nil {
			t.Errorf("%v, %v", got, lock.Context().Err())
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if got := probe(t, store); got != schedule.OutcomeTooSoon {
			t.Errorf("unlocked too soon: %v", got)
		}
		time.Sleep(14 * time.Second)
		if got := probe(t, store); got != schedule.OutcomeRan {
			t.Errorf("afterwards: %v", got)
		}
	})
}

func TestUnlockThatFailedCanBeMadeAgain(t *testing.T) {
	store := newFaulty()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	lock, err := nodeOf(t, store, "a").Lock(t.Context(), schedule.Task{Name: name, AtMostFor: time.Hour, AtLeastFor: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(ended); !errors.Is(err, context.Canceled) || lock.Context().Err() == nil {
		t.Errorf("under a context that has ended: %v", err)
	}
	store.release = errStore
	if err := lock.Unlock(t.Context()); !errors.Is(err, errStore) {
		t.Errorf("store away: %v", err)
	}
	if got := probe(t, store); got != schedule.OutcomeHeld {
		t.Errorf("not unlocked yet: %v", got)
	}
	store.release = nil
	if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if got := probe(t, store); got != schedule.OutcomeTooSoon {
		t.Errorf("unlocked: %v", got)
	}
}
