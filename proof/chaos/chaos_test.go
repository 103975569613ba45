package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease/proof/chaos/history"
)

// TestMain lets the test be started as a worker.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		os.Exit(workerMain())
	}
	os.Exit(m.Run())
}

// short is a run with the parameters of all short ones.
func short(t *testing.T, c config) *outcome {
	t.Helper()
	c.Seed = uint64(time.Now().UnixNano())
	c.TTL, c.Step, c.Settled = time.Second, 40*time.Millisecond, time.Second
	c.Peace, c.Rivals, c.Bound = c.TTL/10, 3, 2*time.Minute
	o, err := run(t.Context(), t, c)
	if err != nil {
		t.Fatalf("seed %d: %v", c.Seed, err)
	}
	var table strings.Builder
	if err := o.report(&table); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
	return o
}

// Every kind of fault, at least once.
func TestPromisesHoldUnderFault(t *testing.T) {
	t.Parallel()
	p := plan{"kill": 8, "pause": 4, "drain": 2}
	for _, f := range faults {
		p[f.kind] = max(1, p[f.kind])
	}
	o := short(t, config{Time: 15 * time.Second, Workers: 4, Works: 6, Plan: p})
	for _, v := range o.violations() {
		t.Error(v)
	}
	done := make(map[string]int)
	for _, f := range o.faults {
		done[f.Kind]++
	}
	for kind, n := range p {
		if done[kind] != n {
			t.Errorf("%d faults of the kind %q, want %d", done[kind], kind, n)
		}
	}
	if f := o.checked.Figures; f.Tenures <= 6 || f.Steps == 0 || f.Claims == 0 || f.Exits["expired"] == 0 {
		t.Errorf("next to nothing has happened: %+v", f)
	}
}

// A check that finds nothing must be shown to find something. Each defect is one that the faults bring
// to light sooner or later, mostly in the first run.
func TestSabotageIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		defect string
		plan   plan
		want   history.Rule
	}{
		{sabotageUnfenced, plan{"pause": 3}, history.FencedSave},
		{sabotageBoastful, plan{"pause": 3}, history.FalselySafe},
		{sabotageLying, plan{"drain": 1}, history.WrongExit},
		{sabotageTorn, plan{"lock": 1}, history.RepeatedEffect},
	} {
		t.Run(c.defect, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				o := short(t, config{Time: 2 * time.Second, Workers: 3, Works: 4, Plan: c.plan, Sabotage: c.defect})
				if slices.ContainsFunc(o.checked.Violations, func(v history.Violation) bool { return v.Kind == c.want }) {
					return
				}
			}
			t.Errorf("the check has not found that %s", c.want)
		})
	}
}

func TestPlan(t *testing.T) {
	p, err := parsePlan("kill=2,pause=1")
	if err != nil || len(p) != 2 || p["kill"] != 2 || p["pause"] != 1 {
		t.Errorf("parsePlan = %v, %v", p, err)
	}
	for _, text := range []string{"", "kill", "kill=x", "kill=-1", "kil=1"} {
		if p, err := parsePlan(text); err == nil {
			t.Errorf("parsePlan(%q) = %v, want an error", text, p)
		}
	}
	for kind := range full {
		if !known(kind) {
			t.Errorf("the long run has a fault %q, which is not known", kind)
		}
	}
}
