package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pause"
	"github.com/aetomala/worklease/proof/chaos/history"
	"github.com/aetomala/worklease/worker"
)

// How a worker's process exits when it does not end well.
const (
	exitFailed = 3
	exitNoLog  = 4
	exitAlone  = 5
)

// process is one life of a worker.
type process struct {
	job
	log       *recorder
	db        *sql.DB // of the work that commits together; the leases have a pool of their own
	beside    *sql.DB // of the other work, whose effects are thought to be elsewhere
	lease     worklease.Lease
	finishing atomic.Bool
}

// workerMain is a worker from its first breath to its last.
func workerMain() int {
	p, err := startProcess(bufio.NewReader(os.Stdin))
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return exitFailed
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var slots sync.WaitGroup
	for _, a := range p.Works {
		slots.Go(func() { p.compete(ctx, a) })
	}
	slots.Wait()
	return 0
}

func startProcess(stdin *bufio.Reader) (*process, error) {
	line, err := stdin.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	p := new(process)
	if err := json.Unmarshal(line, &p.job); err != nil {
		return nil, err
	}
	p.log = &recorder{holder: p.Holder, out: os.NewFile(eventsFD, "events")}
	if p.db, err = sql.Open(p.Driver, p.DSN); err != nil {
		return nil, err
	}
	// A connection that was opened while the server was read-only stays so. The store drops such
	// connections; the work has to see to its own.
	p.db.SetConnMaxLifetime(2 * p.TTL)
	if p.beside, err = sql.Open(p.Driver, p.Beside); err != nil {
		return nil, err
	}
	p.beside.SetConnMaxLifetime(2 * p.TTL)
	leases, err := sql.Open(p.Driver, p.DSN)
	if err != nil {
		return nil, err
	}
	var options []postgres.Option
	if p.Unprepared {
		options = append(options, postgres.WithoutPrepare())
	}
	store, err := postgres.New(leases, options...)
	if err != nil {
		return nil, err
	}
	b, config := sabotaged(p.Sabotage, store, leases, worklease.Config{TTL: p.TTL, HolderID: p.Holder})
	if p.lease, err = worklease.New(recorded{Backend: b, log: p.log}, config); err != nil {
		return nil, err
	}
	go p.listen(stdin)
	return p, nil
}

// listen waits for the order to finish, and for the end of whoever could give it.
func (p *process) listen(stdin *bufio.Reader) {
	for {
		line, err := stdin.ReadString('\n')
		if err != nil {
			os.Exit(exitAlone)
		}
		if line == finishLine+"\n" {
			p.finishing.Store(true)
		}
	}
}

// compete takes the lease whenever it is free, until the work is done for good or the process is told
// to stop.
func (p *process) compete(ctx context.Context, a assignment) {
	t := &task{process: p, assignment: a}
	runner, err := worker.NewRunner(worker.RunnerConfig{
		Lease:  p.lease,
		WorkFn: t.run,
		// Less than a TTL for both: whoever gives up sooner lets others begin sooner.
		CleanupTimeout: p.TTL,
	})
	if err != nil {
		panic(err)
	}
	for ctx.Err() == nil {
		t.done = false
		err := runner.Run(ctx, a.ID)
		if !errors.Is(err, worklease.ErrLeaseHeld) {
			p.returned(a.ID, err)
		}
		if err == nil && t.done {
			p.log.write(history.Event{At: history.Now(), Kind: history.Finished, Work: a.ID})
			return
		}
		if err == nil {
			continue
		}
		if pause.Sleep(ctx, pause.Jitter(p.Poll, 0.5)) != nil {
			return
		}
	}
}

func (p *process) returned(workID string, err error) {
	e := history.Event{At: history.Now(), Kind: history.WorkReturned, Work: workID}
	if err != nil {
		e.Text = err.Error()
	}
	p.log.write(e)
}
