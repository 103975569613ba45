package proof

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/model"
	"pgregory.net/rapid"
)

// A world is a store together with the means to compare it with the model.
type world interface {
	// restart empties the store for the next sequence.
	restart(ctx context.Context) (model.Config, error)
	// shortest is the shortest TTL that does not pass during a call.
	shortest() time.Duration
}

func (w *memoryWorld) restart(context.Context) (model.Config, error) {
	*w = *newMemoryWorld()
	return w.config(), nil
}

func (w *memoryWorld) shortest() time.Duration  { return 0 }
func (w *stoppedWorld) shortest() time.Duration { return 0 }
func (w *runningWorld) shortest() time.Duration { return time.Minute }

// worlds are the stores that are compared with the model, each with its share of the steps.
var worlds = []struct {
	name  string
	open  func(tb testing.TB) world
	share int // in the long form, of a hundred steps on the memory store
	short int // steps in the short form
}{
	{"memory", func(testing.TB) world { return newMemoryWorld() }, 100, 3_000},
	{"PostgreSQL, pq", func(tb testing.TB) world { return newStoppedWorld(tb, "pq") }, 1, 300},
	{"PostgreSQL, pgx", func(tb testing.TB) world { return newStoppedWorld(tb, "pgx") }, 1, 300},
	{"PostgreSQL, its own clock", func(tb testing.TB) world { return newRunningWorld(tb, "pgx") }, 1, 150},
}

func TestStoresAreAsTheModel(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			want := w.short
			if long := asked(t, "WORKLEASE_PROOF_STEPS"); long > 0 {
				want = long * w.share / 100
			}
			world := w.open(t)
			begun, steps, sequences := time.Now(), 0, 0
			for steps < want && !t.Failed() {
				checks(t, want-steps)
				rapid.Check(t, func(rt *rapid.T) {
					sequences++
					steps += randomSteps(rt, world)
				})
			}
			figures("model", w.name, "%d steps in %d sequences, %s", steps, sequences, since(begun))
		})
	}
}

// checks has rapid make that many steps, or somewhat more or less. It makes about thirty in a sequence.
func checks(t *testing.T, steps int) {
	t.Helper()
	if err := flag.Set("rapid.checks", strconv.Itoa(max(steps/30, 1))); err != nil {
		t.Fatal(err)
	}
}

// randomSteps runs one sequence, and returns its length.
func randomSteps(t *rapid.T, world world) (steps int) {
	config, err := world.restart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	runner := model.NewRunner(config)
	t.Repeat(map[string]func(*rapid.T){"step": func(t *rapid.T) {
		op := model.Generate(runner.Model(), func(n int) int {
			return rapid.IntRange(0, n-1).Draw(t, "choice")
		})
		if op.TTL > 0 {
			op.TTL = max(op.TTL, world.shortest())
		}
		if err := runner.Step(t.Context(), op); err != nil {
			t.Fatalf("%v\nthe steps were\n%s", err, runner.Trace())
		}
		steps++
	}})
	return steps
}

// replay runs a sequence that is written down.
func replay(ctx context.Context, world world, ops []model.Op) error {
	config, err := world.restart(ctx)
	if err != nil {
		return err
	}
	runner := model.NewRunner(config)
	for i, op := range ops {
		if err := runner.Step(ctx, op); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func asHeld(err error) (*backend.HeldError, bool) { return errors.AsType[*backend.HeldError](err) }
