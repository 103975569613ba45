// Postgres shows two processes that share work by way of a PostgreSQL table. The program starts itself
// twice: worker-a is killed with SIGKILL half-way, and worker-b, which has been waiting, carries on from
// its last checkpoint once the lease has lapsed.
//
// The database is the one that DATABASE_URL or the flag -dsn names. It gets the table worklease_leases,
// unless it has it; the row of this example is deleted at the end.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/checkpoint"
	"github.com/aetomala/worklease/worker"
)

const (
	ttl   = 3 * time.Second // how long worker-b waits for worker-a, once that is dead
	steps = 6
)

func main() {
	log.SetFlags(0)
	dsn := flag.String("dsn", os.Getenv("DATABASE_URL"), "the `URL` of a PostgreSQL database, in place of DATABASE_URL")
	// The program passes these to itself.
	role := flag.String("worker", "", "be the worker of that `name`")
	workID := flag.String("work", "", "the `ID` of the work")
	hangAfter := flag.Int("hang-after", 0, "hang after that `step`; 0: never")
	flag.Parse()
	if *dsn == "" {
		log.Print("This needs a PostgreSQL database: set DATABASE_URL=postgres://user:password@host:port/database, or pass it with -dsn.")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *role == "" {
		err = parent(ctx, *dsn)
	} else {
		err = child(ctx, *dsn, *role, *workID, *hangAfter)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// parent tells the story: it starts the workers, kills one, and passes on what they say.
func parent(ctx context.Context, dsn string) (err error) {
	db, lease, err := open(dsn, worklease.Config{TTL: ttl, HolderID: "parent"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := postgres.Migrate(ctx, db); err != nil {
		return err
	}
	if err := postgres.Check(ctx, db); err != nil {
		return err
	}
	workID := "example-" + rand.Text() // so that two who run this do not get in each other's way
	a, err := start(ctx, dsn, "worker-a", workID, 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.kill()) }()
	if err := a.relay("step 3 of 6"); err != nil {
		return err
	}
	b, err := start(ctx, dsn, "worker-b", workID, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.kill()) }()
	if err := b.relay("waits"); err != nil {
		return err
	}
	fmt.Println("parent:   kills worker-a")
	if err := a.kill(); err != nil {
		return err
	}
	if err := b.relay("retired"); err != nil {
		return err
	}
	if err := b.cmd.Wait(); err != nil {
		return fmt.Errorf("worker-b: %w", err)
	}

	token, err := lease.Acquire(ctx, workID)
	if err != nil {
		return err
	}
	return lease.Forget(ctx, token)
}

// child does the work, or waits until it may.
func child(ctx context.Context, dsn, name, workID string, hangAfter int) (err error) {
	db, lease, err := open(dsn, worklease.Config{TTL: ttl, HolderID: name, Observer: &waits{name: name}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	work := func(ctx context.Context, token worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
		done, err := checkpoint.Decode[int](checkpoint.JSON(), prior.State)
		if err != nil {
			return nil, err
		}
		by := ""
		if prior.PrevExit != worklease.ExitNone {
			by = " by " + prior.PrevHolderID
		}
		fmt.Printf("%s: acquired, previous exit %s%s, %d steps done\n", name, prior.PrevExit, by, done)
		for step := done + 1; step <= steps; step++ {
			state, err := checkpoint.Encode(checkpoint.JSON(), step)
			if err != nil {
				return nil, err
			}
			if err := lease.Checkpoint(ctx, token, state); err != nil {
				return nil, err
			}
			fmt.Printf("%s: step %d of %d\n", name, step, steps)
			if step == hangAfter {
				// Its lease is being renewed meanwhile. Without a parent there is nobody to kill it.
				_, err := io.Copy(io.Discard, os.Stdin)
				return nil, errors.Join(errors.New("the parent is gone"), err)
			}
		}
		return nil, worklease.ErrRetire
	}
	runner, err := worker.NewRunner(worker.RunnerConfig{
		Lease: lease, WorkFn: work,
		AcquireOptions: []worklease.AcquireOption{worklease.WithWaitForLease(), worklease.WithPollInterval(200 * time.Millisecond)},
		// The TTL is short, so that this does not take long. With one of 30 s the default will do.
		RenewalOptions: []worklease.RenewalOption{worklease.WithRenewalInterval(ttl / 6)},
	})
	if err != nil {
		return err
	}
	if err := runner.Run(ctx, workID); err != nil {
		return err
	}
	fmt.Printf("%s: retired the work\n", name)
	return nil
}

func open(dsn string, cfg worklease.Config) (*sql.DB, worklease.Lease, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(4)
	store, err := postgres.New(db)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	lease, err := worklease.New(store, cfg)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, lease, nil
}

// waits says once that somebody else holds the lease.
type waits struct {
	worklease.NoopObserver
	name string
	said bool // Acquire makes its attempts one after another
}

func (w *waits) OnAcquire(_ context.Context, e worklease.AcquireEvent) {
	if held, ok := errors.AsType[*worklease.HeldError](e.Err); ok && !w.said {
		w.said = true
		fmt.Printf("%s: waits, %s holds the lease\n", w.name, held.HolderID)
	}
}

// process is a worker as the parent sees it.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer // open for as long as the parent lives
	stdout *bufio.Scanner
}

func start(ctx context.Context, dsn, name, workID string, hangAfter int) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-worker", name, "-work", workID, "-hang-after", fmt.Sprint(hangAfter))
	cmd.Env = append(os.Environ(), "DATABASE_URL="+dsn) // everybody can read arguments
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{cmd: cmd, stdin: stdin, stdout: bufio.NewScanner(stdout)}, cmd.Start()
}

// relay prints what the worker says, up to a line that contains the text.
func (p *process) relay(text string) error {
	for p.stdout.Scan() {
		fmt.Println(p.stdout.Text())
		if strings.Contains(p.stdout.Text(), text) {
			return nil
		}
	}
	return errors.Join(errors.New("a worker has ended early"), p.stdout.Err(), p.cmd.Wait())
}

// kill ends the worker as the kernel does that of a machine without memory. It is of no effect on one
// that has ended.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}
		return err
	}
	if err := p.cmd.Wait(); err != nil {
		if _, killed := errors.AsType[*exec.ExitError](err); !killed {
			return err
		}
	}
	return nil
}
