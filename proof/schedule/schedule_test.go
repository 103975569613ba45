package schedule_test

import (
	"crypto/rand"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/internal/redistest"
	"github.com/aetomala/worklease/schedule"
)

const (
	long    = "WORKLEASE_PROOF_TICKS"
	nodes   = 3
	tooSlow = 20 // times as many ticks as are wanted in time
)

// wanted is how many ticks there are to be in which no node is late.
func wanted(t *testing.T) int {
	t.Helper()
	value := os.Getenv(long)
	if value == "" {
		return 3
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, which is no number above zero", long, value)
	}
	return n
}

func figures(what, store, format string, args ...any) {
	if os.Getenv(long) != "" {
		fmt.Printf("\nproof: schedule: %s: %s: %s\n", what, store, fmt.Sprintf(format, args...))
	}
}

var stores = map[string]func(t *testing.T) (address string){
	"PostgreSQL": func(t *testing.T) string {
		dsn := pgtest.Schema(t)
		db := pgtest.Open(t, "pgx", dsn)
		if err := postgres.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), createRuns); err != nil {
			t.Fatal(err)
		}
		return dsn
	},
	"Redis": func(t *testing.T) string { return redistest.Addr(t) + " " + rand.Text() }, // with a prefix
}

// One run a tick, with AtLeastFor and with a Slot, by the same three processes.
func TestOneRunATick(t *testing.T) {
	t.Parallel()
	for store, address := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			want := wanted(t)
			c := start(t, store, address(t), []task{
				{Name: "with AtLeastFor", AtMostFor: 10 * time.Second, AtLeastFor: interval / 2},
				{Name: "with a Slot", AtMostFor: 10 * time.Second, Slots: true},
			})
			c.until(func(s *story) bool {
				return len(s.inTime()) >= want || s.ticks() > tooSlow*want
			})
			c.end()
			for _, s := range c.stories {
				c.check(s)
				inTime := len(s.inTime())
				if inTime < want {
					t.Errorf("%s: in only %d of %d ticks no node was late", s.task.Name, inTime, s.ticks())
				}
				figures(s.task.Name, store, "%s", s.figures())
			}
		})
	}
}

// A node that is killed in the middle of its run, of whatever node that is.
func TestKilledNode(t *testing.T) {
	t.Parallel()
	for store, address := range stores {
		for policy, catchUp := range map[string]schedule.CatchUp{"CatchUpOnce": schedule.CatchUpOnce, "CatchUpSkip": schedule.CatchUpSkip} {
			t.Run(store+"/"+policy, func(t *testing.T) {
				t.Parallel()
				rounds, begun, skipped, caught := max(1, wanted(t)/10), 0, 0, 0
				for round := range rounds {
					t.Run(fmt.Sprint(round), func(t *testing.T) {
						c := start(t, store, address(t), []task{
							{Name: "cut short", AtMostFor: 2 * time.Second, Slots: true, CatchUp: catchUp, Hangs: true},
						})
						c.until((*story).recovered)
						c.end()
						s := c.stories[0]
						c.check(s)
						begun += len(s.runs)
						for _, a := range s.answers {
							if a.Outcome == schedule.OutcomeHeld {
								skipped++
							}
							if a.CaughtUp {
								caught++
							}
						}
					})
				}
				figures("killed, "+policy, store, "%d nodes killed in their run, %d runs begun, %d slots caught up, the name found taken %d times",
					rounds, begun, caught, skipped)
			})
		}
	}
}

// ticks returns how many ticks some node has been through.
func (s *story) ticks() int {
	last := -1
	for _, a := range s.answers {
		last = max(last, a.Tick)
	}
	return last + 1
}

// figures says what was run.
func (s *story) figures() string {
	inTime := s.inTime()
	in, closest := 0, time.Duration(math.MaxInt64)
	byNode := make(map[string]int)
	for i, r := range s.runs {
		byNode[r.Node]++
		if slices.Contains(inTime, s.tickOf(r)) {
			in++
		}
		if i > 0 {
			closest = min(closest, r.Acquired.Sub(s.runs[i-1].Acquired))
		}
	}
	return fmt.Sprintf("%d ticks with no node late, %d runs in these, on the nodes %v; %d ticks and %d runs in all; at least %v from one to the next",
		len(inTime), in, byNode, s.ticks(), len(s.runs), closest.Round(time.Millisecond))
}
