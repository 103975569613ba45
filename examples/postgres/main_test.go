package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease/internal/pgtest"
)

const want = `worker-a: acquired, previous exit none, 0 steps done
worker-a: step 1 of 6
worker-a: step 2 of 6
worker-a: step 3 of 6
worker-b: waits, worker-a holds the lease
parent:   kills worker-a
worker-b: acquired, previous exit expired by worker-a, 3 steps done
worker-b: step 4 of 6
worker-b: step 5 of 6
worker-b: step 6 of 6
worker-b: retired the work
`

func TestOutput(t *testing.T) {
	db := pgtest.Schema(t)
	stdout, stderr, err := run(t, db)
	if err != nil || stderr != "" {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if stdout != want {
		t.Errorf("printed\n%s\nwant\n%s", stdout, want)
	}
	var rows int
	if err := pgtest.Open(t, "pgx", db).QueryRowContext(t.Context(), "SELECT count(*) FROM worklease_leases").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows are left, %v", rows, err)
	}
}

func TestWithoutDatabase(t *testing.T) {
	stdout, stderr, err := run(t, "")
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 2 {
		t.Errorf("ended with %v, want exit status 2", err)
	}
	if stdout != "" || !strings.Contains(stderr, "DATABASE_URL") {
		t.Errorf("printed %q, and said %q", stdout, stderr)
	}
}

// run builds the example and runs it as a user would.
func run(t *testing.T, dsn string) (stdout, stderr string, err error) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "postgres.exe")
	// The state of a repository around the module is no concern of this build.
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	// A worker that nobody kills would hang for ever.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, binary)
	cmd.WaitDelay = 10 * time.Second // the workers keep its standard error open
	cmd.Env = append(os.Environ(), "DATABASE_URL="+dsn)
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	return out.String(), said.String(), err
}
