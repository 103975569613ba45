package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/schedule"
)

func postgresStore(t *testing.T, dsn string) *postgres.Backend {
	t.Helper()
	db := pgtest.Open(t, "pgx", dsn)
	if err := postgres.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.New(db)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// Three nodes on a server, whose clocks are up to 300 ms apart: no slot is run twice.
func TestNoSlotIsRunTwiceOnPostgreSQL(t *testing.T) {
	dsn := pgtest.Schema(t)
	const ticks = 12
	var mu sync.Mutex
	runs := make(map[time.Time]int)
	first := time.Now().Add(time.Second)
	var wg sync.WaitGroup
	for i := range 3 {
		s := nodeOf(t, postgresStore(t, dsn), fmt.Sprint("node-", i))
		wg.Go(func() {
			for tick := range ticks {
				slot := first.Add(time.Duration(tick) * 250 * time.Millisecond)
				time.Sleep(time.Until(slot.Add(time.Duration(i) * 150 * time.Millisecond)))
				_, err := s.Run(t.Context(), schedule.Task{Name: name, AtMostFor: time.Minute, Slot: slot}, func(ctx context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					runs[slot]++
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for slot, n := range runs {
		if n != 1 {
			t.Errorf("slot %v was run %d times", slot.Sub(first), n)
		}
	}
	// How many depends on the machine: where calls take as long as the clocks are apart, a look at one slot
	// may stand in the way of the next.
	if len(runs) == 0 {
		t.Error("no slot was run")
	}
}

func TestOutcomesOnPostgreSQL(t *testing.T) {
	store := postgresStore(t, pgtest.Schema(t))
	a, b := nodeOf(t, store, "a"), nodeOf(t, store, "b")
	task := schedule.Task{Name: name, AtMostFor: time.Hour, AtLeastFor: time.Hour}
	r, err := a.Run(t.Context(), task, func(ctx context.Context) error {
		r, err := b.Run(t.Context(), task, never(t))
		want(t, r, err, schedule.OutcomeHeld)
		if err := schedule.Extend(ctx, 2*time.Hour, 2*time.Hour); err != nil {
			t.Error(err)
		}
		return errWork
	})
	want(t, r, err, schedule.OutcomeRan, errWork)
	start := time.Now()
	r, err = b.Run(t.Context(), task, never(t))
	want(t, r, err, schedule.OutcomeTooSoon)
	if r.Holder != "a" || r.Until.Before(start.Add(time.Hour)) {
		t.Errorf("too soon = %+v", r)
	}
}

// A lease is never part of a transaction of the caller's: rolled back, it would be nobody's.
func TestRunJoinsNoTransactionOfTheCallers(t *testing.T) {
	dsn := pgtest.Schema(t)
	store, db := postgresStore(t, dsn), pgtest.Open(t, "pgx", dsn)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := nodeOf(t, store, "a").Run(postgres.InTx(t.Context(), tx), schedule.Task{Name: name, AtMostFor: time.Hour}, never(t))
	if r.Outcome != schedule.OutcomeNone || err == nil || errors.Is(err, worklease.ErrLeaseHeld) {
		t.Errorf("within a transaction: %v, %v", r.Outcome, err)
	}
	lock, err := nodeOf(t, store, "a").Lock(postgres.InTx(t.Context(), tx), schedule.Task{Name: name, AtMostFor: time.Hour})
	if lock != nil || err == nil || errors.Is(err, worklease.ErrLeaseHeld) {
		t.Errorf("a lock within a transaction: %v, %v", lock, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	if got := probe(t, store); got != schedule.OutcomeRan {
		t.Errorf("afterwards: %v", got)
	}
}

const victimDSN = "WORKLEASE_TEST_SCHEDULE_VICTIM"

// A process that is killed in the middle of a slot leaves it to be caught up, or skipped, and is not
// joined by another run before AtMostFor is over.
func TestSlotOfAKilledProcess(t *testing.T) {
	task := schedule.Task{Name: name, AtMostFor: 3 * time.Second, Slot: at(1)}
	if dsn := os.Getenv(victimDSN); dsn != "" {
		_, err := nodeOf(t, postgresStore(t, dsn), "victim").Run(t.Context(), task, func(context.Context) error {
			fmt.Println("running")
			select {}
		})
		t.Fatal(err)
	}
	for _, tc := range []struct {
		catchUp schedule.CatchUp
		outcome schedule.Outcome
	}{{schedule.CatchUpOnce, schedule.OutcomeRan}, {schedule.CatchUpSkip, schedule.OutcomeMissed}} {
		dsn := pgtest.Schema(t)
		s := nodeOf(t, postgresStore(t, dsn), "successor")
		victim := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSlotOfAKilledProcess$")
		victim.Env = append(os.Environ(), victimDSN+"="+dsn)
		out, err := victim.StdoutPipe()
		if err == nil {
			err = victim.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		if n, err := out.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "running") {
			t.Fatalf("the victim says %q, %v", buf[:n], err)
		}
		task.CatchUp = tc.catchUp
		r, err := s.Run(t.Context(), task, never(t))
		want(t, r, err, schedule.OutcomeHeld)
		if err := victim.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = victim.Wait() // that it was killed
		for r.Outcome == schedule.OutcomeHeld {
			if r, err = s.Run(t.Context(), task, nothing); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		want(t, r, err, tc.outcome)
		if r, err = s.Run(t.Context(), task, never(t)); err != nil || r.Outcome == schedule.OutcomeRan {
			t.Errorf("once more: %v, %v", r.Outcome, err)
		}
	}
}
