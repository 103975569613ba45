package schedule_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease/schedule"
)

const (
	interval = time.Second
	apart    = 300 * time.Millisecond // the most that two nodes' clocks are
	takes    = 5 * time.Millisecond

	nodeSettings = "WORKLEASE_PROOF_NODE"
)

// task is a task as all nodes have it.
type task struct {
	Name                  string
	AtMostFor, AtLeastFor time.Duration
	Slots                 bool // each tick is a Slot
	CatchUp               schedule.CatchUp
	Hangs                 bool // the second run never returns
}

// settings are what a process is told to be.
type settings struct {
	Store, Address, ID string
	Tasks              []task
}

// report is what a process says, one a line.
type report struct {
	Kind       string // ready, hangs or answered
	Node, Task string
	Tick       int
	Struck     time.Time // when the node's clock said that it was time
	Answered   time.Time
	Outcome    schedule.Outcome
	CaughtUp   bool
	Error      string
}

func TestMain(m *testing.M) {
	if told := os.Getenv(nodeSettings); told != "" {
		if err := beNode(told); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// The tests wait most of the time, and do so together however few processors there are.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// node is a process that runs tasks. Its standard input says when the first tick is, and ends when the node
// is to do so.
type node struct {
	settings
	scheduler *schedule.Scheduler
	log       runLog
	first     time.Time
	stop      chan struct{}

	mu  sync.Mutex
	out *json.Encoder
}

func beNode(told string) error {
	n := &node{stop: make(chan struct{}), out: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal([]byte(told), &n.settings); err != nil {
		return err
	}
	store, log, err := open(n.Store, n.Address)
	if err != nil {
		return err
	}
	n.log = log
	if n.scheduler, err = schedule.New(store, schedule.Config{HolderID: n.ID, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	if _, err := log.runs(context.Background(), ""); err != nil { // connects
		return err
	}
	n.say(report{Kind: "ready"})
	in := bufio.NewScanner(os.Stdin)
	if !in.Scan() {
		return errors.Join(errors.New("nobody says when to begin"), in.Err())
	}
	if err := n.first.UnmarshalText(in.Bytes()); err != nil {
		return err
	}
	go func() {
		for in.Scan() {
		}
		close(n.stop)
	}()
	var wg sync.WaitGroup
	for _, t := range n.Tasks {
		wg.Go(func() { n.ticks(t) })
	}
	wg.Wait()
	return nil
}

func (n *node) say(r report) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.Node = n.ID
	if err := n.out.Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, err) // the parent is gone
	}
}

// ticks runs the task whenever the node's clock says so, which it does up to 300 ms before it is time.
func (n *node) ticks(t task) {
	for tick := 0; ; tick++ {
		due := n.first.Add(time.Duration(tick) * interval)
		struck := due.Add(-rand.N(apart))
		select {
		case <-time.After(time.Until(struck)):
		case <-n.stop:
			return
		}
		what := schedule.Task{Name: t.Name, AtMostFor: t.AtMostFor, AtLeastFor: t.AtLeastFor, CatchUp: t.CatchUp}
		if t.Slots {
			what.Slot = due
		}
		result, err := n.scheduler.Run(context.Background(), what, func(ctx context.Context) error { return n.run(ctx, t, tick, due) })
		r := report{
			Kind: "answered", Task: t.Name, Tick: tick, Struck: struck, Answered: time.Now(),
			Outcome: result.Outcome, CaughtUp: !result.CaughtUp.IsZero(),
		}
		if err != nil {
			r.Error = err.Error()
		}
		n.say(r)
	}
}

// run is the task's function.
func (n *node) run(ctx context.Context, t task, tick int, due time.Time) error {
	token := schedule.MustHold(ctx)
	mine, ok := schedule.SlotOf(ctx)
	if ok != t.Slots {
		return fmt.Errorf("tick %d of %s: slot %v, %t", tick, t.Name, mine, ok)
	}
	if !ok {
		mine = due
	}
	r := run{
		Task: t.Name, Slot: mine, Node: n.ID, Token: token.FencingToken(),
		Acquired: token.ExpiresAt().Add(-t.AtMostFor), // by the store's clock
	}
	before, err := n.log.begin(ctx, r)
	if err != nil {
		return err
	}
	if t.Hangs && before == 1 {
		n.say(report{Kind: "hangs", Task: t.Name, Tick: tick})
		<-n.stop // which it does not live to see
		return errors.New("nobody killed this node")
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	return cmp.Or(context.Cause(ctx), n.log.end(ctx, r))
}
