package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/aetomala/worklease/proof/chaos/history"
)

// fleet is all the workers of a run, and what they tell.
type fleet struct {
	members []*member

	mu       sync.Mutex
	events   []history.Event
	finished map[string]bool // work IDs
	allDone  chan struct{}   // closed when every work ID has finished
	works    int
	problems []string // processes that ended as none should
	closing  bool     // ends are no longer answered with a new life
	order    bool     // work is to come to an end

	wg sync.WaitGroup // of the members
}

// member is one worker through all of its lives.
type member struct {
	fleet *fleet
	index int
	job   job

	mu       sync.Mutex
	life     int
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	sentHome bool // told to end, by a signal that it obeys in its own time
}

func newFleet(jobs []job, works int) *fleet {
	f := &fleet{finished: make(map[string]bool), allDone: make(chan struct{}), works: works}
	for i, j := range jobs {
		f.members = append(f.members, &member{fleet: f, index: i, job: j})
	}
	return f
}

// start brings all members to life and keeps them so.
func (f *fleet) start() error {
	for _, m := range f.members {
		if err := m.begin(); err != nil {
			return err
		}
	}
	return nil
}

// begin starts one life.
func (m *member) begin() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fleet.mu.Lock()
	closing, order := m.fleet.closing, m.fleet.order
	m.fleet.mu.Unlock()
	if closing {
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	m.life++
	j := m.job
	j.Holder = history.HolderID(m.index, m.life)
	line, err := json.Marshal(j)
	if err != nil {
		return err
	}
	events, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), workerVariable+"=1")
	cmd.ExtraFiles = []*os.File{theirs} // the first is number eventsFD
	var stderr tail
	cmd.Stderr = &stderr
	// In a group of its own a worker that is stopped when this process dies is not left so: the system
	// sends it a hang-up and wakes it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return errors.Join(err, events.Close())
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, events.Close())
	}
	m.cmd, m.stdin, m.sentHome = cmd, stdin, false
	line = append(line, '\n')
	if order {
		line = append(line, finishLine+"\n"...)
	}
	_, _ = stdin.Write(line) // fails only if the worker has ended, and that says why
	m.fleet.wg.Go(func() { m.attend(cmd, events, &stderr) })
	return nil
}

// attend takes in what one life tells, and begins the next when it has ended.
func (m *member) attend(cmd *exec.Cmd, events *os.File, stderr *tail) {
	f := m.fleet
	f.listen(events)
	err := errors.Join(cmd.Wait(), events.Close())
	m.mu.Lock()
	sentHome := m.sentHome
	m.mu.Unlock()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	by := func(s syscall.Signal) bool { return status.Signaled() && status.Signal() == s }
	// Who is sent home too early in its life has not learnt to obey yet, and just dies.
	wanted := by(syscall.SIGKILL) || sentHome && (err == nil || by(syscall.SIGTERM))
	f.mu.Lock()
	if err != nil && !wanted {
		f.problems = append(f.problems, fmt.Sprintf("worker %d: %v: %s", m.index, err, stderr))
	}
	f.mu.Unlock()
	if !wanted {
		return // its work is done, or it would only fail again
	}
	if err := m.begin(); err != nil {
		f.mu.Lock()
		f.problems = append(f.problems, err.Error())
		f.mu.Unlock()
	}
}

// listen takes in events until their writer has ended.
func (f *fleet) listen(events io.Reader) {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return // what is not a whole line was not written in time
		}
		f.take(line)
	}
}

func (f *fleet) take(line []byte) {
	var e history.Event
	err := json.Unmarshal(line, &e)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.problems = append(f.problems, fmt.Sprintf("the event %q: %v", line, err))
		return
	}
	f.events = append(f.events, e)
	if e.Kind == history.Finished && !f.finished[e.Work] {
		f.finished[e.Work] = true
		if len(f.finished) == f.works {
			close(f.allDone)
		}
	}
}

// lives returns how many there have been.
func (m *member) lives() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.life
}

// signal sends a signal to the present life. There may be none just now.
func (m *member) signal(s syscall.Signal) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sentHome = m.sentHome || s == syscall.SIGTERM
	return m.cmd != nil && m.cmd.Process.Signal(s) == nil
}

// finish tells all members to bring the work to an end.
func (f *fleet) finish() {
	f.mu.Lock()
	f.order = true
	f.mu.Unlock()
	for _, m := range f.members {
		m.mu.Lock()
		_, _ = io.WriteString(m.stdin, finishLine+"\n") // the next life is told anyway
		m.mu.Unlock()
	}
}

// settle waits until all members have ended, as they do when they have found all their work done. Who
// was late to look has the lease for a moment once more, and must not be killed with it.
func (f *fleet) settle(patience time.Duration) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.wg.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		f.mu.Lock()
		f.problems = append(f.problems, fmt.Sprintf("some workers have not ended %v after all work had", patience))
		f.mu.Unlock()
	}
}

// stop ends all members, and returns when their last events are in.
func (f *fleet) stop() {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	for _, m := range f.members {
		m.mu.Lock()
		if m.cmd != nil {
			_ = m.cmd.Process.Kill() // it may have ended
		}
		m.mu.Unlock()
	}
	f.wg.Wait()
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-4<<10):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
