// Command chaos has worker processes compete for leases in a real PostgreSQL while everything around them
// fails, and checks from what they tell that nothing was lost and nobody wrote who must not.
//
//	go run ./chaos -time 7m -seed 1
//
// It starts a PostgreSQL server of its own and leaves nothing behind. The exit status is 1 if a promise
// was broken. With -sabotage the workers break one on purpose, and the check has to find it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

func main() {
	if os.Getenv(workerVariable) != "" {
		os.Exit(workerMain())
	}
	os.Exit(mainWithFlags())
}

// full is what the long run has of each kind, in seven minutes.
var full = plan{
	"kill": 520, "pause": 310, "drain": 60, "freeze": 90, "delay": 60, "drop": 80, "refuse": 80,
	"stop-fast": 26, "stop-immediate": 26, "freeze-all": 4, "delay-all": 4, "drop-all": 4, "refuse-all": 4,
	"terminate": 4, "lock": 4, "read-only": 4, "read-only-session": 4, "timeout": 4, "sync-stall": 5,
}

func mainWithFlags() int {
	c := config{}
	flag.Uint64Var(&c.Seed, "seed", uint64(time.Now().UnixNano()), "what the faults are drawn from")
	flag.DurationVar(&c.Time, "time", 7*time.Minute, "time in which the faults are done")
	flag.DurationVar(&c.TTL, "ttl", time.Second, "TTL of the leases")
	flag.DurationVar(&c.Step, "step", 80*time.Millisecond, "pause between two steps of the work, about")
	flag.IntVar(&c.Workers, "workers", 10, "worker processes")
	flag.IntVar(&c.Works, "works", 20, "work IDs; half of them commit effects and checkpoints together, half do not heed the loss of a lease")
	flag.IntVar(&c.Rivals, "rivals", 4, "workers that compete for each work ID")
	flag.DurationVar(&c.Bound, "bound", 30*time.Second, "time for all work to finish after the last fault")
	flag.StringVar(&c.Sabotage, "sabotage", "", "defect that the workers have: "+strings.Join(sabotages, ", "))
	log := flag.String("log", "", "file to write all events and faults to, a line each")
	c.Plan = full
	flag.Func("faults", "faults of each kind, as in kill=10,pause=5 (default: 1,300 of all kinds)", func(text string) (err error) {
		c.Plan, err = parsePlan(text)
		return err
	})
	flag.Parse()
	c.Settled, c.Peace = c.TTL, c.TTL

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	h := &host{}
	o, err := run(ctx, h, c)
	h.close()
	if err == nil {
		err = o.report(os.Stdout)
	}
	if err == nil && *log != "" {
		err = o.writeLog(*log)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	case len(o.violations()) > 0:
		return 1
	}
	return 0
}

func parsePlan(text string) (plan, error) {
	p := make(plan)
	for part := range strings.SplitSeq(text, ",") {
		kind, number, ok := strings.Cut(part, "=")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n < 0 || !known(kind) {
			return nil, fmt.Errorf("%q is not of the form kind=number, with a known kind", part)
		}
		p[kind] = n
	}
	return p, nil
}

func known(kind string) bool {
	for _, f := range faults {
		if f.kind == kind {
			return true
		}
	}
	return false
}
