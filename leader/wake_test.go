package leader_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/leader"
)

// A standby whose store tells of a release leads at once; one that learns of it by asking, or whose leader
// died, leads after its pause.
func TestStandbyIsWokenWhenTheLeaderReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var leads [2]time.Duration
		start := time.Now()
		done := make(chan error, 2)
		for i, holder := range []string{"a", "b"} {
			lease := leaseOf(t, store, holder)
			go func() {
				done <- leader.Run(t.Context(), lease, workID, leader.Config{IdleInterval: time.Hour}, func(context.Context) error {
					leads[i] = time.Since(start)
					time.Sleep(time.Minute)
					return nil
				})
			}()
			synctest.Wait()
		}
		wantErr(t, <-done)
		wantErr(t, <-done)
		if leads != [2]time.Duration{0, time.Minute} {
			t.Errorf("they lead from %v", leads)
		}
	})
}

// The end of its own term, of which it is told too, does not spare it the pause after an error.
func TestOwnReleaseDoesNotCutThePauseShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, terms := time.Now(), 0
		wantErr(t, leader.Run(t.Context(), leaseOf(t, memory.New(), "a"), workID, leader.Config{BackoffInterval: time.Minute}, func(context.Context) error {
			if terms++; terms == 1 {
				return errWork
			}
			return nil
		}))
		if took := time.Since(start); took < time.Minute || terms != 2 {
			t.Errorf("%d terms in %v", terms, took)
		}
	})
}
