// Package scheduletest helps to test code that runs under a lease of package schedule.
package scheduletest

import (
	"context"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/schedule"
)

// Context returns a context under which [schedule.Held], [schedule.MustHold] and [schedule.Extend] find a
// lease, which no other test shares. It has the values of t.Context, and ends when the test does.
func Context(t testing.TB) context.Context {
	t.Helper()
	s, err := schedule.New(memory.New(), schedule.Config{HolderID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := s.Lock(t.Context(), schedule.Task{Name: "test", AtMostFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx := lock.Context()
	t.Cleanup(func() {
		if ctx.Err() == nil { // the code under test may have lost it
			if err := lock.Unlock(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}
	})
	return ctx
}
