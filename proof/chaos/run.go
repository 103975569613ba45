package main

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
	"github.com/aetomala/worklease/proof/chaos/history"
)

// config is what a run is made of.
type config struct {
	Seed     uint64
	Time     time.Duration // in which the faults are done
	TTL      time.Duration
	Step     time.Duration
	Workers  int
	Works    int
	Rivals   int // workers that compete for a work ID
	Bound    time.Duration
	Plan     plan
	Sabotage string
	Settled  time.Duration // before the first fault
	Peace    time.Duration // between two faults of the server, at least
}

// outcome is what a run has come to.
type outcome struct {
	config   config
	history  history.History
	checked  history.Result
	faults   []history.Fault
	recovery history.Recovery
	lives    int
	took     time.Duration
	problems []string
}

const effectsTable = `CREATE TABLE effects (
	id BIGSERIAL PRIMARY KEY, work_id TEXT NOT NULL, step INT NOT NULL, fencing_token BIGINT NOT NULL, holder_id TEXT NOT NULL)`

// run starts a server and the workers, has the nemesis rage, lets the work finish and checks what there was.
func run(ctx context.Context, tb testing.TB, c config) (*outcome, error) {
	begun := time.Now()
	// Without fsync a server that is stopped loses nothing; only a machine would.
	server := pgtest.New(tb, "max_connections = 500", "log_min_messages = fatal", "fsync = off")
	db := pgtest.Open(tb, "pgx", server.DSN("application_name=admin"))
	for _, definition := range []string{postgres.Schema, effectsTable} {
		if _, err := db.ExecContext(ctx, definition); err != nil {
			return nil, err
		}
	}
	n := &nemesis{
		ttl:    c.TTL,
		peace:  c.Peace,
		server: server,
		trunk:  pgtest.NewProxy(tb, server.DSN()),
		admin: &administrator{tb: tb, dsn: server.DSN("application_name=admin", "synchronous_commit=local",
			"statement_timeout=0", "default_transaction_read_only=off")},
	}
	h := history.History{Works: make(map[string]bool), Bound: c.Bound, TTL: c.TTL, Linger: 6 * c.TTL}
	n.fleet = newFleet(n.jobs(tb, c, h.Works), c.Works)
	defer n.fleet.stop()
	if err := n.fleet.start(); err != nil {
		return nil, err
	}
	select {
	case <-time.After(c.Settled):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.rage(ctx, c.Plan, c.Seed, c.Time)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	h.Quiet = history.Now()
	n.fleet.finish()
	select {
	case <-n.fleet.allDone:
		n.fleet.settle(c.Bound)
	case <-time.After(c.Bound):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.fleet.stop()
	h.Events = n.fleet.events
	if err := readTables(ctx, db, &h); err != nil {
		return nil, err
	}
	o := &outcome{config: c, history: h, checked: history.Check(h), faults: n.faults, problems: n.fleet.problems}
	o.recovery = history.Recover(h, n.faults)
	for _, m := range n.fleet.members {
		o.lives += m.lives()
	}
	o.took = time.Since(begun)
	return o, nil
}

// accesses are the ways in which programs talk to the server.
var accesses = []struct {
	driver     string
	unprepared bool
	params     []string
}{
	{driver: "pgx"},
	{driver: "postgres"},
	{driver: "pgx", unprepared: true, params: []string{"default_query_exec_mode=exec"}},
	{driver: "postgres", unprepared: true, params: []string{"binary_parameters=yes"}},
}

// jobs gives each worker a proxy, and each work ID some workers that compete for it.
func (n *nemesis) jobs(tb testing.TB, c config, together map[string]bool) []job {
	jobs := make([]job, c.Workers)
	for i := range jobs {
		proxy := pgtest.NewProxy(tb, n.trunk.DSN())
		n.proxies = append(n.proxies, proxy)
		jobs[i] = job{TTL: c.TTL, Step: c.Step, Poll: c.TTL / 5, Sabotage: c.Sabotage}
		a := accesses[i%len(accesses)]
		jobs[i].Driver, jobs[i].Unprepared, jobs[i].DSN = a.driver, a.unprepared, pgtest.WithParams(proxy.DSN(), a.params...)
		jobs[i].Beside = pgtest.WithParams(n.server.DSN(), a.params...)
	}
	for i := range c.Works {
		a := assignment{ID: fmt.Sprintf("work-%02d", i), Together: i%2 == 0, Reckless: i%4 == 1 || i%4 == 2}
		together[a.ID] = a.Together
		for k := range min(c.Rivals, c.Workers) {
			// Neighbours are rivals in different sets, so that no worker's end hits one set of works only.
			j := &jobs[(i*3+k*(1+i/c.Workers%2))%c.Workers]
			j.Works = append(j.Works, a)
		}
	}
	return jobs
}

// readTables adds what the database holds to a history.
func readTables(ctx context.Context, db *sql.DB, h *history.History) error {
	db.SetMaxIdleConns(0) // what is open is from before the server was stopped
	rows, err := db.QueryContext(ctx, "SELECT work_id, step, fencing_token, holder_id FROM effects ORDER BY id")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var e history.Effect
		if err := rows.Scan(&e.Work, &e.Step, &e.Token, &e.Holder); err != nil {
			return err
		}
		h.Effects = append(h.Effects, e)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	leases, err := db.QueryContext(ctx, `SELECT work_id, holder_id, fencing_token,
		coalesce(convert_from(checkpoint, 'UTF8'), ''), coalesce(exit_mode, '') FROM worklease_leases`)
	if err != nil {
		return err
	}
	defer leases.Close()
	for leases.Next() {
		var r history.Row
		if err := leases.Scan(&r.Work, &r.Holder, &r.Token, &r.State, &r.Exit); err != nil {
			return err
		}
		h.Rows = append(h.Rows, r)
	}
	return leases.Err()
}
