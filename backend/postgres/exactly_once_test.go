//go:build unix

package postgres_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/worker"
)

// The tests of this file run the transfer of [ExampleInTx] in processes of their own: this test binary
// again, with one of these roles in the environment.
const (
	roleVar = "WORKLEASE_TEST_TRANSFER"
	dsnVar  = "WORKLEASE_TEST_TRANSFER_DSN"

	roleWorker = "worker" // transfers until all is done, as often as it has to start again
	roleBefore = "before" // stops for ever before the first checkpoint, or until it is told to go on
	roleAfter  = "after"  // the same between the checkpoint and the commit
	roleSaver  = "saver"  // saves some states and lives on, without a transfer

	transferTTL  = time.Second
	transferRows = 2000
)

// newTransfer makes the tables. target has no key that would keep a row from being there twice, and
// notes which transaction a row is from.
func newTransfer(t *testing.T) *fixture {
	f := newFixture(t, "pgx")
	exec(t, f.admin, `CREATE TABLE source (id bigint PRIMARY KEY, amount int NOT NULL);
		CREATE TABLE target (id bigint, amount int, tx text DEFAULT pg_current_xact_id()::text)`)
	exec(t, f.admin, "INSERT INTO source SELECT n, n % 97 FROM generate_series(1, $1::int) AS n", transferRows)
	return f
}

// mustBeTransferred checks that each row was transferred once, in whole batches.
func mustBeTransferred(t *testing.T, f *fixture) {
	t.Helper()
	for what, query := range map[string]string{
		"rows":          "SELECT count(*) FROM target",
		"rows that fit": "SELECT count(DISTINCT id) FROM target JOIN source USING (id, amount)",
		"transactions":  "SELECT 50 * count(DISTINCT tx) FROM target",
		"state":         "SELECT convert_from(checkpoint, 'UTF8')::int FROM worklease_leases WHERE exit_mode = 'retired'",
	} {
		if n := scan[int](t, f.admin, query); n != transferRows {
			t.Errorf("%s: %d, want %d", what, n, transferRows)
		}
	}
}

// Processes that are killed at any moment leave nothing undone and nothing done twice.
func TestEveryRowIsTransferredOnceWhenWorkersAreKilled(t *testing.T) {
	if inChild(t) {
		return
	}
	t.Parallel()
	const seed = 20260102
	random := rand.New(rand.NewPCG(seed, 0))
	f := newTransfer(t)

	// While one works, the next one starts and waits for the lease.
	start := func(n int) *process { return startChild(t, f, roleWorker, []string{"pq", "pgx"}[n%2]) }
	holder, kills := start(0), 0
	for {
		if !holder.says("begins") {
			t.Fatalf("a worker has ended: %v", holder.wait())
		}
		standby := start(kills + 1)
		time.Sleep(time.Duration(random.Int64N(int64(150 * time.Millisecond)))) // any moment will do
		if scan[int](t, f.admin, "SELECT count(*) FROM target") > transferRows*4/5 || kills == 8 {
			for _, p := range []*process{holder, standby} {
				if !p.says("done") {
					t.Errorf("a worker has ended: %v", p.wait())
				}
			}
			break
		}
		holder.kill()
		holder, kills = standby, kills+1
	}
	mustBeTransferred(t, f)
	if tenures := scan[int](t, f.admin, "SELECT last_value FROM worklease_fencing_seq"); kills < 3 || tenures <= kills {
		t.Errorf("%d kills in %d tenures show little", kills, tenures)
	}
	t.Logf("seed %d: %d kills", seed, kills)
}

// A process that is stopped for so long that another takes over cannot commit what it had begun,
// although it looks at no context and ignores all errors.
func TestZombieCannotCommit(t *testing.T) {
	if inChild(t) {
		return
	}
	for name, row := range map[string]struct {
		role, driver string
		params       []string
		want         string
	}{
		"stopped before the checkpoint, lib/pq": {role: roleBefore, driver: "pq", want: "checkpoint: fenced, commit: fails"},
		"stopped before the checkpoint, pgx":    {role: roleBefore, driver: "pgx", want: "checkpoint: fenced, commit: fails"},
		// The row's lock keeps everybody out until the server ends the transaction, as it is told to here.
		"stopped before the commit": {role: roleAfter, driver: "pgx",
			params: []string{"idle_in_transaction_session_timeout=500"}, want: "checkpoint: done, commit: fails"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newTransfer(t)
			zombie := startChild(t, f, row.role, row.driver, row.params...)
			if !zombie.says("holds") {
				t.Fatal(zombie.wait())
			}
			zombie.signal(syscall.SIGSTOP)
			if successor := startChild(t, f, roleWorker, "pgx"); !successor.says("done") {
				t.Fatal(successor.wait())
			}
			zombie.signal(syscall.SIGCONT)
			zombie.goOn()
			if !zombie.says(row.want) {
				t.Errorf("the zombie says %q, want %q", zombie.said, row.want)
			}
			mustBeTransferred(t, f)
		})
	}
}

// Nobody gets in between the checkpoint and the commit, however long that takes.
func TestStoppedProcessCommitsWhatItsCheckpointCovers(t *testing.T) {
	if inChild(t) {
		return
	}
	t.Parallel()
	f := newTransfer(t)
	sleeper := startChild(t, f, roleAfter, "pq")
	if !sleeper.says("holds") {
		t.Fatal(sleeper.wait())
	}
	sleeper.signal(syscall.SIGSTOP)
	successor := startChild(t, f, roleWorker, "pgx")
	f.awaitBlocked(t, 1) // the TTL is over, and the successor stands before the row
	sleeper.signal(syscall.SIGCONT)
	sleeper.goOn()
	if want := "checkpoint: done, commit: done"; !sleeper.says(want) {
		t.Errorf("the first says %q, want %q", sleeper.said, want)
	}
	if !successor.says("done") {
		t.Fatal(successor.wait())
	}
	mustBeTransferred(t, f)
}

// inChild plays a role, in a process that has one.
func inChild(t *testing.T) bool {
	role, driver, ok := strings.Cut(os.Getenv(roleVar), " ")
	if !ok {
		return false
	}
	db := pgtest.Open(t, driver, os.Getenv(dsnVar))
	store, err := postgres.New(pgtest.Open(t, driver, os.Getenv(dsnVar)))
	if err != nil {
		t.Fatal(err)
	}
	var lease worklease.Lease
	ttl := transferTTL
	if role == roleSaver {
		ttl = saverTTL
	}
	lease, err = worklease.New(store, worklease.Config{TTL: ttl, HolderID: fmt.Sprint(os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	switch role {
	case roleSaver:
		save(t, lease)
		return true
	case roleBefore, roleAfter:
		zombie(t, role, db, lease)
		return true
	}
	lease = slowly{lease}
	work := transfer(db, lease)
	runner, err := worker.NewRunner(worker.RunnerConfig{
		Lease: lease,
		WorkFn: func(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
			fmt.Println("begins")
			return work(ctx, token, prior)
		},
		AcquireOptions: []worklease.AcquireOption{
			worklease.WithWaitForLease(), worklease.WithPollInterval(20 * time.Millisecond)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // a wait for a row that takes longer than the TTL is an error, and so is a lapse
		if err = runner.Run(t.Context(), "transfer"); err == nil {
			fmt.Println("done")
			return true
		}
	}
	t.Fatal(err)
	return true
}

// slowly is a lease whose checkpoints take a while on either side, so that what is killed at any moment
// is killed at every step.
type slowly struct{ worklease.Lease }

func (s slowly) Checkpoint(ctx context.Context, token worklease.Token, state []byte) error {
	time.Sleep(rand.N(10 * time.Millisecond))
	err := s.Lease.Checkpoint(ctx, token, state)
	time.Sleep(rand.N(10 * time.Millisecond))
	return err
}

// zombie transfers one batch, with a long pause and without a care: no renewal, no context that ends.
func zombie(t *testing.T, role string, db *sql.DB, lease worklease.Lease) {
	token, err := lease.Acquire(t.Context(), "transfer")
	if err != nil {
		t.Fatal(err)
	}
	var saved error
	_, err = transferBatch(t.Context(), db, careless{lease, role, &saved}, token, 0)
	outcome := func(err error) string {
		switch {
		case err == nil:
			return "done"
		case errors.Is(err, worklease.ErrFenced):
			return "fenced"
		}
		return "fails"
	}
	fmt.Printf("checkpoint: %s, commit: %s\n", outcome(saved), outcome(err))
}

// careless is a lease whose checkpoint holds its process up, and is reported as a success in any case.
type careless struct {
	worklease.Lease
	role  string
	saved *error
}

func (c careless) Checkpoint(ctx context.Context, token worklease.Token, state []byte) error {
	hold := func(role string) {
		if role == c.role {
			fmt.Println("holds")
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		}
	}
	hold(roleBefore)
	*c.saved = c.Lease.Checkpoint(ctx, token, state)
	hold(roleAfter)
	return nil
}

// process is a child of the test.
type process struct {
	t     *testing.T
	cmd   *osexec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
	said  []string
}

// startChild runs the calling test again, in a process with that role. The process is gone when the
// test has ended, and also if this process dies: its group is then an orphan, and gets a SIGHUP.
func startChild(t *testing.T, f *fixture, role, driver string, params ...string) *process {
	t.Helper()
	top, _, _ := strings.Cut(t.Name(), "/")
	cmd := osexec.Command(os.Args[0], "-test.run=^"+top+"$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), roleVar+"="+role+" "+driver, dsnVar+"="+pgtest.WithParams(f.dsn, params...))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}
	t.Cleanup(p.kill)
	return p
}

// says waits until the process says that, and reports whether it has.
func (p *process) says(line string) bool {
	for p.lines.Scan() {
		p.said = append(p.said, p.lines.Text())
		if p.lines.Text() == line {
			return true
		}
	}
	return false
}

func (p *process) goOn() {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the process, with all that it was about to do. It does no harm to one that has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.wait()
}

// wait returns how the process ended, which it must have been told to.
func (p *process) wait() error { return p.cmd.Wait() }
