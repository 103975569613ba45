//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
)

// saverTTL is long enough for a busy machine to renew in.
const saverTTL = 3 * time.Second

// save makes ten checkpoints and then keeps its lease until its process ends.
func save(t *testing.T, lease worklease.Lease) {
	token, err := lease.Acquire(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	renewCtx, stop := lease.StartRenewal(t.Context(), token)
	defer stop()
	for i := range 10 {
		if err := lease.Checkpoint(renewCtx, token, fmt.Append(nil, i+1)); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("saved")
	<-renewCtx.Done()
	t.Fatal(context.Cause(renewCtx))
}

// A process that is killed keeps its work for no longer than its TTL, and loses nothing that it has saved.
func TestLeaseOfAKilledProcessIsFreeAfterItsTTL(t *testing.T) {
	if inChild(t) {
		return
	}
	sideBySide(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		holder := startChild(t, f, roleSaver, driver)
		if !holder.says("saved") {
			t.Fatal(holder.wait())
		}
		await(t, "the lease to live on renewals", func() bool {
			return scan[bool](t, f.admin, "SELECT expires_at > acquired_at + $1 * interval '2 s' FROM worklease_leases", saverTTL.Seconds())
		})
		holder.kill()
		killed := time.Now()
		expires := scan[time.Time](t, f.admin, "SELECT expires_at FROM worklease_leases")
		successor := newLease(t, f, "b", time.Minute, nil)
		token, err := successor.Acquire(t.Context(), "report", worklease.WithWaitForLease(), worklease.WithPollInterval(20*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(killed); took > saverTTL+late {
			t.Errorf("the lease was free after %v", took)
		}
		if acquired := scan[time.Time](t, f.admin, "SELECT acquired_at FROM worklease_leases"); acquired.Before(expires) {
			t.Errorf("the lease was taken %v before its time", expires.Sub(acquired))
		}
		found, err := successor.ReadCheckpoint(t.Context(), token)
		if err != nil || string(found.State) != "10" || found.PrevExit != worklease.ExitExpired || found.PrevHolderID != fmt.Sprint(holder.cmd.Process.Pid) {
			t.Errorf("read %q %v %q, %v", found.State, found.PrevExit, found.PrevHolderID, err)
		}
	})
}

// Who has taken a lease for long and crashed can be helped by hand.
func TestLeaseThatIsEndedByHandIsFreeAtOnceAndItsHolderFenced(t *testing.T) {
	page, err := os.ReadFile("../../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	_, statement, found := strings.Cut(string(page), "**Ending a lease by hand.**")
	_, statement, _ = strings.Cut(statement, "```sql\n")
	statement, _, _ = strings.Cut(statement, "```")
	if !found || statement == "" {
		t.Fatal("the page does not say how")
	}
	eachDriver(t, func(t *testing.T, driver string) {
		f := newFixture(t, driver)
		old := acquire(t, f.store, "report-2026", "a", 4*time.Hour)
		other := acquire(t, f.store, "report-2027", "a", 4*time.Hour)
		if err := f.store.Checkpoint(t.Context(), old, []byte("state"), 4*time.Hour); err != nil {
			t.Fatal(err)
		}
		exec(t, f.admin, statement)
		for name, err := range map[string]error{
			"Renew":      renewMinute(t.Context(), f.store, old),
			"Checkpoint": f.store.Checkpoint(t.Context(), old, []byte("late"), time.Minute),
			"Release":    f.store.Release(t.Context(), old, backend.ExitFinished),
		} {
			if !errors.Is(err, backend.ErrFenced) {
				t.Errorf("%s: %v", name, err)
			}
		}
		next := acquire(t, f.store, "report-2026", "b", time.Minute)
		if next.FencingToken <= other.FencingToken {
			t.Errorf("token %d after %d", next.FencingToken, other.FencingToken)
		}
		found, err := f.store.ReadCheckpoint(t.Context(), next)
		if err != nil || string(found.State) != "state" || found.PrevExit != backend.ExitExpired || found.PrevHolderID != "a" {
			t.Errorf("read %q %v %q, %v", found.State, found.PrevExit, found.PrevHolderID, err)
		}
		if err := renewMinute(t.Context(), f.store, other); err != nil {
			t.Errorf("another lease: %v", err)
		}
	})
}
