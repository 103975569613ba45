// Package nodes is what the programs here have around their jobs: a process that starts itself three times, and a
// database that these share.
package nodes

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
	"github.com/aetomala/worklease/schedule"
)

const (
	// EveryTwoSeconds is when a job is due, with a field for the seconds.
	EveryTwoSeconds = "*/2 * * * * *"
	// AtLeast is longer than the nodes' clocks are apart, and shorter than the interval.
	AtLeast = time.Second

	interval = 2 * time.Second
	runs     = 3 // until the program ends
)

// Starter starts a scheduler of jobs that calls report when it is this node's turn to run task. stop ends it.
type Starter func(ctx context.Context, s *schedule.Scheduler, task string, report func() error) (stop func() error, err error)

// Main is the main function of a program whose nodes use start.
func Main(start Starter) {
	log.SetFlags(0)
	dsn := flag.String("dsn", os.Getenv("DATABASE_URL"), "the `URL` of a PostgreSQL database, in place of DATABASE_URL")
	// The program passes these to itself.
	name := flag.String("node", "", "be the node of that `name`")
	task := flag.String("task", "", "the `name` of the task")
	flag.Parse()
	if *dsn == "" {
		log.Print("This needs a PostgreSQL database: set DATABASE_URL=postgres://user:password@host:port/database, or pass it with -dsn.")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *name == "" {
		err = parent(ctx, *dsn)
	} else {
		err = node(ctx, *dsn, *name, *task, start)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// node is what every process of a service would have.
func node(ctx context.Context, dsn, name, task string, start Starter) (err error) {
	db, store, err := open(dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s, err := schedule.New(store, schedule.Config{HolderID: name})
	if err != nil {
		return err
	}
	stop, err := start(ctx, s, task, func() error {
		_, err := fmt.Printf("%s %s\n", time.Now().Truncate(interval).Format(time.TimeOnly), name)
		return err
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent has seen enough, or is gone
	return errors.Join(err, stop())
}

// parent starts the nodes and prints what they say.
func parent(ctx context.Context, dsn string) (err error) {
	db, store, err := open(dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := postgres.Migrate(ctx, db); err != nil {
		return err
	}
	task := "example-" + rand.Text() // so that two who run this do not get in each other's way
	said, say := io.Pipe()
	var stops []func() error
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		stop, err := spawn(ctx, dsn, name, task, say)
		if err != nil {
			return err
		}
		stops = append(stops, stop)
	}
	ticks := make(map[string]bool)
	for lines, n := bufio.NewScanner(said), 0; n < runs && lines.Scan(); n++ {
		tick, name, _ := strings.Cut(lines.Text(), " ")
		ticks[tick] = true
		fmt.Printf("%s: run by %s\n", tick, name)
	}
	go func() { _, _ = io.Copy(io.Discard, said) }() // what they say while they end
	for _, stop := range stops {
		err = errors.Join(err, stop())
	}
	fmt.Printf("%d ticks, %d runs, 3 nodes\n", len(ticks), runs)
	return errors.Join(err, forget(ctx, store, task))
}

// spawn starts a node, and returns what ends it.
func spawn(ctx context.Context, dsn, name, task string, say io.Writer) (stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-node", name, "-task", task)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+dsn) // everybody can read arguments
	cmd.Stdout, cmd.Stderr = say, os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return func() error { return errors.Join(stdin.Close(), cmd.Wait()) }, cmd.Start()
}

func open(dsn string) (*sql.DB, *postgres.Backend, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, nil, err
	}
	store, err := postgres.New(db)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, store, nil
}

// forget deletes the row of the task, which a service would leave where it is.
func forget(ctx context.Context, store *postgres.Backend, task string) error {
	lease, err := worklease.New(store, worklease.Config{TTL: time.Minute, HolderID: "parent"})
	if err != nil {
		return err
	}
	token, err := lease.Acquire(ctx, task, worklease.WithWaitForLease()) // until AtLeastFor is over
	if err != nil {
		return err
	}
	return lease.Forget(ctx, token)
}
