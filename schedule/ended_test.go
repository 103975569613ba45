package schedule_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/schedule"
)

// What a function has left behind does not keep the name: not even a goroutine that extends as long as it can.
func TestNothingKeepsTheNameOfARunThatIsOver(t *testing.T) {
	for how, end := range map[string]func(){
		"panic":  func() { panic(errWork) },
		"goexit": runtime.Goexit,
		"return": func() {},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				task := schedule.Task{Name: name, AtMostFor: 10 * time.Second, AtLeastFor: 10 * time.Second}
				var beating sync.WaitGroup
				var done sync.WaitGroup
				done.Go(func() {
					defer func() { _ = recover() }()
					_, _ = nodeOf(t, store, "a").Run(t.Context(), task, func(ctx context.Context) error {
						beating.Go(func() {
							for range 100 {
								time.Sleep(3 * time.Second)
								if schedule.Extend(context.WithoutCancel(ctx), 10*time.Second, 0) != nil {
									return
								}
							}
						})
						time.Sleep(time.Second)
						end()
						return nil
					})
				})
				done.Wait()
				time.Sleep(10 * time.Second)
				if got := probe(t, store); got != schedule.OutcomeRan {
					t.Errorf("the name is not free after AtMostFor: %v", got)
				}
				beating.Wait()
			})
		})
	}
}

// answersLate is a store whose renewals take effect at once, and are answered when they are let.
type answersLate struct {
	*memory.Backend
	renewed, answer chan struct{}
}

func (s *answersLate) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	err := s.Backend.Renew(ctx, record, ttl)
	close(s.renewed)
	<-s.answer
	return err
}

// An extension that is answered after the run is over gives nothing: the name is free by then.
func TestExtendThatIsOvertakenByTheEndOfTheRun(t *testing.T) {
	store := &answersLate{memory.New(), make(chan struct{}), make(chan struct{})}
	task := schedule.Task{Name: name, AtMostFor: time.Hour, NoKeepAlive: true}
	extended := make(chan error)
	var kept context.Context
	r, err := nodeOf(t, store, "a").Run(t.Context(), task, func(ctx context.Context) error {
		kept = ctx
		go func() { extended <- schedule.Extend(context.WithoutCancel(ctx), time.Hour, 0) }()
		<-store.renewed
		return nil
	})
	want(t, r, err, schedule.OutcomeRan)
	close(store.answer)
	if err := <-extended; !errors.Is(err, worklease.ErrLeaseExpired) {
		t.Errorf("extension: %v", err)
	}
	if _, ok := schedule.Held(kept); ok {
		t.Error("what was given back is said to be held")
	}
	if _, ok := worklease.LeaseWindow(context.WithoutCancel(kept)); ok {
		t.Error("the window of what was given back is open")
	}
	if got := probe(t, store.Backend); got != schedule.OutcomeRan {
		t.Errorf("afterwards: %v", got)
	}
}

func TestExtendThatIsOvertakenByAnUnlock(t *testing.T) {
	store := &answersLate{memory.New(), make(chan struct{}), make(chan struct{})}
	lock, err := nodeOf(t, store, "a").Lock(t.Context(), schedule.Task{Name: name, AtMostFor: time.Hour, NoKeepAlive: true})
	if err != nil {
		t.Fatal(err)
	}
	extended := make(chan error)
	go func() { extended <- lock.Extend(t.Context(), time.Hour, 0) }()
	<-store.renewed
	if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	close(store.answer)
	if err := <-extended; !errors.Is(err, worklease.ErrLeaseExpired) {
		t.Errorf("extension: %v", err)
	}
	if _, ok := worklease.LeaseWindow(context.WithoutCancel(lock.Context())); ok {
		t.Error("the window of what was given back is open")
	}
	if err := lock.Unlock(t.Context()); !errors.Is(err, worklease.ErrLeaseExpired) {
		t.Errorf("second unlock: %v", err)
	}
}
