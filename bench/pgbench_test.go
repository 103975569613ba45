package bench

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/aetomala/worklease/internal/pgtest"
)

// The line says what the time for connecting is not part of; from version 14 on in other words.
var tps = regexp.MustCompile(`tps = ([0-9.]+) \((?:without initial connection time|excluding connections establishing)\)`)

var processed = regexp.MustCompile(`number of transactions actually processed: ([0-9]+)`)

// pgbench is a variant: as many clients run a script, prepared, in the schema that dsn leads to. It
// knows whole seconds only, so that each turn takes one.
func pgbench(t *testing.T, c *clock, program, dsn, script string, clients int) variant {
	t.Helper()
	file := filepath.Join(t.TempDir(), "script.sql")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	args := []string{"--no-vacuum", "--protocol=prepared", "--file=" + file,
		"--client=" + strconv.Itoa(clients), "--jobs=" + strconv.Itoa(min(clients, runtime.NumCPU()))}
	var start time.Duration // the processor time before the first transaction
	run := func(amount string) (rate, transactions float64, cpu time.Duration) {
		t.Helper()
		processes, before := len(c.children()), c.server()
		cmd := exec.CommandContext(t.Context(), program, append(args, amount)...)
		// Not as arguments, which other users of the machine can read.
		cmd.Env = append(os.Environ(), "PGHOST="+u.Hostname(), "PGPORT="+u.Port(), "PGUSER="+u.User.Username(),
			"PGPASSWORD="+password, "PGDATABASE="+u.Path[1:], "PGSSLMODE="+u.Query().Get("sslmode"),
			"PGOPTIONS=-c search_path="+u.Query().Get("search_path"))
		out, err := cmd.CombinedOutput()
		for _, number := range []struct {
			is *float64
			in *regexp.Regexp
		}{{&rate, tps}, {&transactions, processed}} {
			match := number.in.FindSubmatch(out)
			if err != nil || match == nil {
				t.Fatalf("pgbench: %v\n%s", err, out)
			}
			if *number.is, err = strconv.ParseFloat(string(match[1]), 64); err != nil {
				t.Fatal(err)
			}
		}
		c.settle(processes)
		return rate, transactions, c.server() - before + cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return func(d time.Duration) sample {
		t.Helper()
		if d == 0 {
			_, _, start = run("--transactions=1")
			return sample{}
		}
		rate, n, cpu := run(pick("--time=1", "--transactions=5"))
		return sample{rate: rate, cpu: (cpu - start).Seconds() / n}
	}
}

// findPgbench returns "" if there is none and nothing depends on it: some packages bring a server alone.
func findPgbench(t *testing.T) string {
	t.Helper()
	program, err := pgtest.Program("pgbench")
	switch {
	case err == nil:
		return program
	case *tables:
		t.Fatal(err)
	}
	t.Logf("the scripts for it are not tried: %v", err)
	return ""
}

// onOwnLease is a script whose statements change the leases that [nth] gives to a client.
func onOwnLease(statements string) string {
	return fmt.Sprintf("\\set id :client_id * %d + random(0, %d)\n%s\n", leasesEach(), leasesEach()-1, statements)
}
