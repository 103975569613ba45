package main

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/aetomala/worklease/internal/pgtest"
)

// faults are all the kinds there are.
var faults = []fault{
	{kind: "kill", what: "SIGKILL; another process takes its place", onWorker: kill},
	{kind: "pause", what: "SIGSTOP for 1.1 to 2 TTLs, then SIGCONT", onWorker: stopAndContinue},
	{kind: "drain", what: "SIGTERM; another process takes its place", onWorker: drain},
	{kind: "freeze", what: "partition: the network of a worker goes silent", onWorker: partition(freeze)},
	{kind: "delay", what: "partition: the network of a worker is slow", onWorker: partition(delay)},
	{kind: "drop", what: "partition: replies to a worker are lost", onWorker: partition(drop)},
	{kind: "refuse", what: "partition: a worker's connections are cut and refused", onWorker: partition(refuse)},
	{kind: "stop-fast", what: "server stopped and started", onServer: restart((*pgtest.Private).Stop)},
	{kind: "stop-immediate", what: "server stopped without a checkpoint, and recovered", onServer: restart((*pgtest.Private).StopImmediate)},
	{kind: "freeze-all", what: "all networks go silent", onServer: partitionAll(freeze)},
	{kind: "delay-all", what: "all networks are slow", onServer: partitionAll(delay)},
	{kind: "drop-all", what: "replies to all are lost", onServer: partitionAll(drop)},
	{kind: "refuse-all", what: "all connections are cut and refused", onServer: partitionAll(refuse)},
	{kind: "terminate", what: "all backends terminated every 500 ms", onServer: terminateAll},
	{kind: "lock", what: "ACCESS EXCLUSIVE lock for 2 TTLs", onServer: lockTable},
	{kind: "read-only", what: "read-only by ALTER SYSTEM", onServer: readOnly},
	{kind: "read-only-session", what: "read-only by ALTER DATABASE, connections kept after it", onServer: readOnlySessions},
	{kind: "timeout", what: "statement_timeout of 10 ms and short locks", onServer: statementTimeout},
	{kind: "sync-stall", what: "commits wait for a standby that is not there", onServer: stallCommits},
}

func kill(_ context.Context, n *nemesis, _ *rand.Rand, worker int) {
	n.fleet.members[worker].signal(syscall.SIGKILL)
}

func drain(_ context.Context, n *nemesis, _ *rand.Rand, worker int) {
	n.fleet.members[worker].signal(syscall.SIGTERM)
}

func stopAndContinue(ctx context.Context, n *nemesis, rng *rand.Rand, worker int) {
	m := n.fleet.members[worker]
	m.signal(syscall.SIGSTOP)
	wait(ctx, n.between(rng, 1.1, 2))
	m.signal(syscall.SIGCONT)
}

// disturbance is begun on a proxy, and ended by the function that it returns.
type disturbance func(rng *rand.Rand, p *pgtest.Proxy) (end func())

func freeze(_ *rand.Rand, p *pgtest.Proxy) func() {
	p.Freeze()
	return p.Thaw
}

func delay(rng *rand.Rand, p *pgtest.Proxy) func() {
	p.Delay(time.Duration(rng.IntN(200))*time.Millisecond, time.Duration(rng.IntN(200))*time.Millisecond)
	return func() { p.Delay(0, 0) }
}

// drop cuts the connections afterwards: a client whose reply was lost may wait for it for ever.
func drop(rng *rand.Rand, p *pgtest.Proxy) func() {
	p.DropReplies(rng.IntN(2) == 0)
	return func() {
		p.PassReplies()
		p.Cut()
	}
}

func refuse(_ *rand.Rand, p *pgtest.Proxy) func() {
	p.Refuse()
	p.Cut()
	return p.Accept
}

func partition(begin disturbance) func(context.Context, *nemesis, *rand.Rand, int) {
	return func(ctx context.Context, n *nemesis, rng *rand.Rand, worker int) {
		end := begin(rng, n.proxies[worker])
		wait(ctx, n.between(rng, 0.2, 2))
		end()
	}
}

// partitionAll disturbs what all networks have in common, so that the end of a worker's own partition does
// not end it.
func partitionAll(begin disturbance) func(context.Context, *nemesis, *rand.Rand) {
	return func(ctx context.Context, n *nemesis, rng *rand.Rand) {
		end := begin(rng, n.trunk)
		wait(ctx, n.between(rng, 0.2, 2))
		end()
	}
}

func restart(stop func(*pgtest.Private)) func(context.Context, *nemesis, *rand.Rand) {
	return func(ctx context.Context, n *nemesis, rng *rand.Rand) {
		stop(n.server)
		wait(ctx, n.between(rng, 0, 1.5))
		n.server.Start()
	}
}

func terminateAll(ctx context.Context, n *nemesis, _ *rand.Rand) {
	for range 5 {
		n.admin.do(terminateBackends)
		wait(ctx, 500*time.Millisecond)
	}
}

func lockTable(ctx context.Context, n *nemesis, _ *rand.Rand) {
	n.admin.withLock(func() { wait(ctx, 2*n.ttl) })
}

func readOnly(ctx context.Context, n *nemesis, rng *rand.Rand) {
	n.admin.do("ALTER SYSTEM SET default_transaction_read_only = on", reload)
	wait(ctx, n.between(rng, 0.5, 2))
	n.admin.do("ALTER SYSTEM RESET default_transaction_read_only", reload)
}

// readOnlySessions is a failover as connection pools see it: what they opened meanwhile stays read-only.
func readOnlySessions(ctx context.Context, n *nemesis, rng *rand.Rand) {
	n.admin.do("ALTER DATABASE postgres SET default_transaction_read_only = on", terminateBackends)
	wait(ctx, n.between(rng, 0.5, 2))
	n.admin.do("ALTER DATABASE postgres RESET default_transaction_read_only")
}

func statementTimeout(ctx context.Context, n *nemesis, rng *rand.Rand) {
	n.admin.do("ALTER SYSTEM SET statement_timeout = '10ms'", reload)
	for range 4 {
		n.admin.withLock(func() { wait(ctx, n.between(rng, 0.1, 0.3)) })
		wait(ctx, n.between(rng, 0.1, 0.3))
	}
	n.admin.do("ALTER SYSTEM RESET statement_timeout", reload)
}

func stallCommits(ctx context.Context, n *nemesis, rng *rand.Rand) {
	n.admin.do("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", reload)
	wait(ctx, n.between(rng, 0.5, 2))
	n.admin.do("ALTER SYSTEM RESET synchronous_standby_names", reload)
}
