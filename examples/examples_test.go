// Package examples tests the programs beneath it.
package examples

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// outputs has what each program prints.
var outputs = map[string]string{
	"quickstart": `previous exit: none, saved state: ""
previous exit: finished, saved state: "step 1 done"
`,
	"crash-recovery": `host-1: acquired import-2026
host-1: step 1 of 6
host-1: step 2 of 6
host-1: step 3 of 6
host-1: vanishes
host-2: has to wait, host-1 holds the lease for another 30s
store:  30s pass, nobody renews
host-2: acquired import-2026, previous exit expired, by host-1 after step 3
host-2: step 4 of 6
host-2: step 5 of 6
host-2: step 6 of 6
host-2: retired the work
host-1: is back, and its checkpoint of step 4 is refused: fenced
`,
	"checkpoint-resume": `host-1: previous exit none, state "", starts at row 1
host-1: row 1, the sum is 50
host-1: row 2, the sum is 70
host-1: saved {"last_row":2,"sum":70}
host-1: row 3, the sum is 140
host-1: row 4, the sum is 150
host-1: saved {"last_row":4,"sum":150}
host-1: row 5, the sum is 180
host-1: gives up: disk full
host-2: previous exit abandoned, state "{\"last_row\":5,\"sum\":180}", starts at row 6
host-2: row 6, the sum is 240
host-2: saved {"last_row":6,"sum":240}
host-2: row 7, the sum is 280
host-2: row 8, the sum is 360
host-2: saved {"last_row":8,"sum":360}
host-2: finished
`,
	"wait-for-lease": `host-1: holds report-2026
host-2: report-2026 is held by host-1 until 2026-01-02T15:04:35Z
host-2: has waited for 100ms: deadline exceeded, matches ErrLeaseHeld: false
host-2: waits
host-1: releases it as finished
host-2: holds report-2026, previous exit finished, by host-1
`,
	"lease-window": `host-1: previous exit none, after step 0
host-1: step 1 of 4: done and saved
host-1: step 2 of 4: done and saved
host-1: step 3 of 4: done and not saved, the store cannot be reached
host-1: step 4 of 4: not begun, the lease is not sure for 1.5s
host-1: stops: lease window exhausted; renewals failed meanwhile: true
host-2: previous exit expired, after step 2
host-2: step 3 of 4: done and saved
host-2: step 4 of 4: done and saved
`,
	"retire-and-sweep": `order-17: shipped, which happens once: retired
report-daily: written, and due again tomorrow: finished
import-2026: cannot go on: abandoned
order-18: its holder vanishes
sweep: retention of a week, lapsed leases too: false: deleted 0
a week later
sweep: retention of a week, lapsed leases too: false: deleted 1
sweep: retention of a week, lapsed leases too: true: deleted 1
order-17: previous exit none, state ""
report-daily: previous exit finished, state "up to January 2"
import-2026: previous exit abandoned, state "half of it"
order-18: previous exit none, state ""
`,
	"observability": `level=DEBUG msg=acquire host=host-1 class=ok work=report-2026 token=1
level=DEBUG msg=acquire host=host-2 class=contention work=report-2026 held_by=host-1
level=INFO msg=acquire host=host-2 class=cancelled work=report-2026
level=DEBUG msg=checkpoint host=host-1 class=ok work=report-2026 bytes=6
level=WARN msg=renew host=host-1 class=timeout work=report-2026 err="worklease: renew \"report-2026\" as \"host-1\": context deadline exceeded" attempt=1
level=ERROR msg=renew host=host-1 class=fault work=report-2026 err="worklease: renew \"report-2026\" as \"host-1\": connection refused" attempt=1
level=DEBUG msg=acquire host=host-2 class=ok work=report-2026 token=2
level=DEBUG msg=read host=host-2 class=ok work=report-2026 previous_exit=expired bytes=6
level=WARN msg=checkpoint host=host-1 class=lost work=report-2026 bytes=6
level=WARN msg=fenced host=host-1 work=report-2026 in=Checkpoint
level=DEBUG msg=release host=host-2 class=ok work=report-2026 exit=retired
level=DEBUG msg=sweep class=ok deleted=1
{"acquire cancelled": 1, "acquire contention": 1, "acquire ok": 2, "checkpoint lost": 1, "checkpoint ok": 1, "fenced": 1, "read ok": 1, "release ok": 1, "renew fault": 1, "renew timeout": 1, "rows swept": 1, "sweep ok": 1}
`,
	"leader-failover": `host-1: elected
host-2: stands by
host-1: is told to shut down
host-1: has stopped
host-2: elected
host-1: is back, and stands by
host-2: is cut off from the store
host-2: lost
host-1: elected
host-1: is told to shut down
host-1: has stopped
host-2: elected
host-2: has stopped
`,
	"rolling-restart": `host-1, old version: starts
host-1, old version: reads 4 partitions
host-2, old version: starts
host-2, old version: reads 0 partitions
host-1, old version: has stopped
host-2, old version: reads 4 partitions
host-1, new version: starts
host-2, old version: has stopped
host-1, new version: reads 4 partitions
host-1, new version: has stopped
orders-0: every record was read once, in order
orders-1: every record was read once, in order
orders-2: every record was read once, in order
orders-3: every record was read once, in order
`,
}

func TestOutput(t *testing.T) {
	programs, err := filepath.Glob("*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	// What is a module of its own, since it needs a driver, has its own test.
	programs = slices.DeleteFunc(programs, func(program string) bool {
		_, err := os.Stat(filepath.Join(filepath.Dir(program), "go.mod"))
		return err == nil
	})
	if len(programs) != len(outputs) {
		t.Errorf("there are %d programs and %d outputs", len(programs), len(outputs))
	}
	for _, program := range programs {
		example := filepath.Dir(program)
		t.Run(example, func(t *testing.T) {
			want, known := outputs[example]
			if !known {
				t.Fatal("its output is not known: add it to outputs")
			}
			if got := output(t, example); got != want {
				t.Errorf("printed\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// output builds an example and runs it as a user would: its standard output is returned, and anything
// on its standard error fails the test.
func output(t *testing.T, example string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), example+".exe")
	// The state of a repository around the module is no concern of this build.
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./"+example)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Fatalf("%s: %v\n%s", example, err, &stderr)
	}
	return stdout.String()
}
