//go:build unix

package pgtest_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aetomala/worklease/internal/pgtest"
)

// With this variable set, the test is run in the process that gets killed.
const victim = "PGTEST_VICTIM"

func TestNothingIsLeftOfAKilledTestProcess(t *testing.T) {
	if os.Getenv(victim) != "" {
		startAndWaitForDeath(t)
	}
	t.Parallel()
	t.Run("running", func(t *testing.T) {
		t.Parallel()
		v := startVictim(t)
		var backends []int
		for v.stdout.Scan() && v.stdout.Text() != "ready" {
			var pid int
			if _, err := fmt.Sscanf(v.stdout.Text(), "backend %d", &pid); err == nil {
				backends = append(backends, pid)
			}
		}
		if len(backends) != 3 {
			t.Fatalf("the process has told of %d backends, want 3", len(backends))
		}
		if left := v.left(t); len(left) == 0 {
			t.Fatal("no files found, so that a look for them proves nothing")
		}
		v.kill(t)
		await(t, "all processes to end and all files to go", func() bool {
			for _, pid := range backends {
				if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
					return false
				}
			}
			return len(v.left(t)) == 0
		})
	})
	t.Run("starting", func(t *testing.T) {
		t.Parallel()
		v := startVictim(t)
		await(t, "initdb to be at work", func() bool {
			found, err := filepath.Glob(v.tmp + "/worklease-pg-template-*/data/base/*")
			return err == nil && len(found) > 0
		})
		v.kill(t)
		await(t, "all processes to end and all files to go", func() bool { return len(v.left(t)) == 0 })
	})
}

// startAndWaitForDeath starts one of each, says so, and never returns.
func startAndWaitForDeath(t *testing.T) {
	shared, private := pgtest.Start(t), pgtest.New(t)
	bouncer := pgtest.NewBouncer(t, pgtest.Database(t))
	for _, dsn := range []string{shared.DSN(), private.DSN(), bouncer} {
		fmt.Println("backend", scan[int](t, pgtest.Open(t, "pgx-exec", dsn), "SELECT pg_backend_pid()"))
	}
	fmt.Println("ready")
	select {}
}

type victimProcess struct {
	cmd    *exec.Cmd
	stdout *bufio.Scanner
	tmp    string // where it puts its files
}

func startVictim(t *testing.T) *victimProcess {
	t.Helper()
	// Not t.TempDir, into which the user that the servers run as could not look. It is short, as the
	// path of a socket has to be.
	tmp, err := os.MkdirTemp("/tmp", "victim-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(tmp); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNothingIsLeftOfAKilledTestProcess$")
	cmd.Env = append(os.Environ(), victim+"=1", "TMPDIR="+tmp, "WORKLEASE_TEST_POSTGRES_DSN=")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &victimProcess{cmd: cmd, stdout: bufio.NewScanner(stdout), tmp: tmp}
}

func (v *victimProcess) kill(t *testing.T) {
	t.Helper()
	if err := v.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Wait(); err == nil {
		t.Fatal("the process has ended by itself")
	}
}

// left lists the files of the process, or without any the processes that were told of one of them.
func (v *victimProcess) left(t *testing.T) []string {
	t.Helper()
	left, err := filepath.Glob(v.tmp + "/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		return left // the list of processes is not cheap
	}
	processes, err := exec.Command("ps", "-A", "-o", "args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(processes)) {
		if strings.Contains(line, v.tmp) {
			left = append(left, line)
		}
	}
	return left
}
