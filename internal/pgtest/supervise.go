package pgtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// guardScript removes a directory once nobody holds the other end of its standard input any more.
const guardScript = `read -r _
exec rm -rf -- "$1"`

// runScript runs a command and sends it the signals whose names it reads, one a line. When its input
// ends, which is also what the death of the test process looks like, it sends the signal in $1. The
// shell is the command's parent, so the process ID can't be reused before `wait` has returned, and
// nothing stays a zombie in a container whose first process doesn't reap. The last CONT is for a
// command that a test has stopped.
const runScript = `last=$1
shift
exec 5<&0
"$@" </dev/null 5<&- &
pid=$!
{
	while read -r signal; do kill -s "$signal" "$pid"; done
	kill -s "$last" "$pid"
	kill -s CONT "$pid"
} <&5 2>/dev/null &
watcher=$!
exec 5<&-
wait "$pid"
code=$?
kill "$watcher"
exit "$code"`

// errTimeout is what process.wait returns when the process is still there.
var errTimeout = errors.New("still running")

// workdir is a directory that is removed when the test process and everything that runs in it have
// ended: each of them holds the pipe on which the guard waits.
type workdir struct {
	path  string
	hold  *os.File
	guard *exec.Cmd
}

func newWorkdir(pattern string) (*workdir, error) {
	path, err := os.MkdirTemp(tempDir(), pattern)
	if err != nil {
		return nil, err
	}
	if err := chownUnprivileged(path); err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	stdin, hold, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	defer stdin.Close()
	guard := exec.Command("sh", "-c", guardScript, "guard", path)
	guard.Dir = "/"
	guard.Stdin = stdin
	guard.SysProcAttr = detached(false)
	if err := guard.Start(); err != nil {
		return nil, errors.Join(err, hold.Close(), os.RemoveAll(path))
	}
	return &workdir{path: path, hold: hold, guard: guard}, nil
}

// remove lets go of the directory and waits until it is gone. What runs in it must have ended.
func (w *workdir) remove() error {
	return errors.Join(w.hold.Close(), w.guard.Wait())
}

// write puts a file into the directory that the unprivileged user may read and nobody else.
func (w *workdir) write(name, content string) (string, error) {
	path := w.path + "/" + name
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return "", err
	}
	return path, chownUnprivileged(path)
}

// process is a command under runScript.
type process struct {
	cmd     *exec.Cmd
	control *os.File // names of signals go in here
	alive   *os.File // ends when the last process that descends from the command has
}

// run starts a command in the directory, as the unprivileged user; its output goes to log. When the
// test process is no more, the command gets the signal named last.
func (w *workdir) run(log *os.File, last string, command ...string) (*process, error) {
	stdin, control, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	alive, inherited, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	defer inherited.Close()
	cmd := exec.Command("sh", append([]string{"-c", runScript, "run", last}, command...)...)
	cmd.Dir = w.path
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PGOPTIONS=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, log, log
	cmd.ExtraFiles = []*os.File{w.hold, inherited}
	cmd.SysProcAttr = detached(true)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, control.Close(), alive.Close())
	}
	return &process{cmd: cmd, control: control, alive: alive}, nil
}

// do runs a command like run does and waits until it has ended.
func (w *workdir) do(log *os.File, command ...string) error {
	p, err := w.run(log, "TERM", command...)
	if err != nil {
		return err
	}
	if err = p.wait(patience); errors.Is(err, errTimeout) {
		err = errors.Join(err, p.stop("KILL", patience))
	}
	return err
}

// signal sends the signal of that name, such as INT, to the command, not to its children.
func (p *process) signal(name string) error {
	_, err := p.control.WriteString(name + "\n")
	return err
}

// wait returns when the command and all of its children have ended, with the command's failure if
// there is one; or errTimeout, upon which it may be called again.
func (p *process) wait(timeout time.Duration) error {
	if err := p.alive.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, err := p.alive.Read(make([]byte, 1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errTimeout
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("waiting for %s: %w", p.cmd.Args[5], err)
	}
	return errors.Join(p.cmd.Wait(), p.control.Close(), p.alive.Close())
}

// stop sends a signal and waits until everything is gone; how the command exits is its own business.
// What has not gone by then is killed, and that is an error.
func (p *process) stop(signal string, timeout time.Duration) error {
	if err := p.signal(signal); err != nil {
		return err
	}
	err := ignoreExit(p.wait(timeout))
	if !errors.Is(err, errTimeout) {
		return err
	}
	err = fmt.Errorf("%s %v after SIG%s: %w", p.cmd.Args[5], timeout, signal, err)
	return errors.Join(err, p.signal("KILL"), ignoreExit(p.wait(timeout)))
}

func ignoreExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}
