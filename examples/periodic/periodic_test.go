package periodic

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease/internal/pgtest"
)

var programs = []string{"cron", "gocron"}

const (
	line = `\d\d:\d\d:\d\d: run by node-[123]\n`
	last = "3 ticks, 3 runs, 3 nodes\n"
)

// Who runs is anybody's guess; that one does in each tick is not, unless a process was a second late: then
// the machine has another try.
func TestOutput(t *testing.T) {
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			binary, db := build(t, program), pgtest.Schema(t)
			var stdout, stderr string
			for range 3 {
				var err error
				if stdout, stderr, err = run(t, binary, db); err != nil || stderr != "" {
					t.Fatalf("%v\n%s", err, stderr)
				}
				if !regexp.MustCompile(`^(` + line + `){3}\d ticks, 3 runs, 3 nodes\n$`).MatchString(stdout) {
					t.Fatalf("printed\n%s", stdout)
				}
				if strings.HasSuffix(stdout, last) {
					break
				}
			}
			if !strings.HasSuffix(stdout, last) {
				t.Errorf("printed\n%s", stdout)
			}
			var rows int
			if err := pgtest.Open(t, "pgx", db).QueryRowContext(t.Context(), "SELECT count(*) FROM worklease_leases").Scan(&rows); err != nil || rows != 0 {
				t.Errorf("%d rows are left, %v", rows, err)
			}
		})
	}
}

func TestWithoutDatabase(t *testing.T) {
	for _, program := range programs {
		stdout, stderr, err := run(t, build(t, program), "")
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.ExitCode() != 2 {
			t.Errorf("%s: ended with %v, want exit status 2", program, err)
		}
		if stdout != "" || !strings.Contains(stderr, "DATABASE_URL") {
			t.Errorf("%s: printed %q, and said %q", program, stdout, stderr)
		}
	}
}

func build(t *testing.T, program string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), program+".exe")
	// The state of a repository around the module is no concern of this build.
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./"+program)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return binary
}

// run runs a program as a user would.
func run(t *testing.T, binary, dsn string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, binary)
	cmd.WaitDelay = 10 * time.Second // the nodes keep its standard error open
	cmd.Env = append(os.Environ(), "DATABASE_URL="+dsn)
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	return out.String(), said.String(), err
}
