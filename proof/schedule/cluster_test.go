package schedule_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"
)

// cluster is the processes of a store, and what they say.
type cluster struct {
	t         *testing.T
	log       runLog
	processes map[string]*process
	reports   chan report // closed when all processes have ended
	stories   []*story
}

type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// start starts the nodes, and lets the first tick be soon.
func start(t *testing.T, store, address string, tasks []task) *cluster {
	t.Helper()
	c := &cluster{t: t, processes: make(map[string]*process), reports: make(chan report)}
	var err error
	if _, c.log, err = open(store, address); err != nil {
		t.Fatal(err)
	}
	var talking sync.WaitGroup
	for i := range nodes {
		id := fmt.Sprint("node-", i)
		told, err := json.Marshal(settings{Store: store, Address: address, ID: id, Tasks: tasks})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), nodeSettings+"="+string(told))
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		c.processes[id] = &process{cmd, stdin}
		talking.Go(func() {
			lines := bufio.NewScanner(stdout)
			for lines.Scan() {
				var r report
				if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
					r = report{Kind: "talks nonsense", Node: id, Error: lines.Text()}
				}
				c.reports <- r
			}
		})
	}
	go func() {
		talking.Wait()
		close(c.reports)
	}()
	t.Cleanup(func() { // also of a test that has failed
		c.close()
		for range c.reports {
		}
	})
	for range nodes {
		if r, ok := <-c.reports; !ok || r.Kind != "ready" {
			t.Fatalf("in place of being ready, a node says %+v", r)
		}
	}
	first := time.Now().Add(interval).Round(time.Microsecond) // as exact as an instant is in PostgreSQL
	for _, task := range tasks {
		c.stories = append(c.stories, &story{task: task, first: first, nodes: nodes})
	}
	for _, p := range c.processes {
		if _, err := fmt.Fprintln(p.stdin, first.Format(time.RFC3339Nano)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// until listens until enough is known of every task.
func (c *cluster) until(enough func(*story) bool) {
	c.t.Helper()
	for r := range c.reports {
		c.hear(r)
		if r.Tick > 2*tooSlow*wanted(c.t) {
			c.t.Fatalf("not enough is known after tick %d", r.Tick)
		}
		if !slices.ContainsFunc(c.stories, func(s *story) bool { return !enough(s) }) {
			return
		}
	}
	c.t.Fatal("all nodes have ended")
}

func (c *cluster) hear(r report) {
	c.t.Helper()
	i := slices.IndexFunc(c.stories, func(s *story) bool { return s.task.Name == r.Task })
	if i < 0 {
		c.t.Fatalf("a node says %+v", r)
	}
	switch s := c.stories[i]; r.Kind {
	case "answered":
		s.answers = append(s.answers, r)
	case "hangs":
		p := c.processes[r.Node]
		if err := p.cmd.Process.Kill(); err != nil {
			c.t.Fatal(err)
		}
		s.killed, s.cut = r.Node, r.Tick
	}
}

// close tells the nodes to end.
func (c *cluster) close() {
	for _, p := range c.processes {
		_ = p.stdin.Close() // of one that has ended already
	}
}

// end lets the nodes finish what they do.
func (c *cluster) end() {
	c.t.Helper()
	c.close()
	for r := range c.reports {
		c.hear(r)
	}
	for id, p := range c.processes {
		err := p.cmd.Wait()
		killed := slices.ContainsFunc(c.stories, func(s *story) bool { return s.killed == id })
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !(exited && killed) {
			c.t.Errorf("%s: %v", id, err)
		}
	}
}

// check compares a task's log with what was promised.
func (c *cluster) check(s *story) {
	c.t.Helper()
	var err error
	if s.runs, err = c.log.runs(context.WithoutCancel(c.t.Context()), s.task.Name); err != nil {
		c.t.Fatal(err)
	}
	if err := s.check(); err != nil {
		c.t.Errorf("%s: %v", s.task.Name, err)
		for _, r := range s.runs {
			ended := "not ended"
			if !r.Ended.IsZero() {
				ended = fmt.Sprint("ended ", r.Ended.Sub(s.first))
			}
			c.t.Logf("%s: tick %d on %s: token %d, acquired %v, started %v, %s", s.task.Name, s.tickOf(r), r.Node, r.Token,
				r.Acquired.Sub(s.first), r.Started.Sub(s.first), ended)
		}
	}
}
