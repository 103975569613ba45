package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a server may take to start or to end.
const patience = 30 * time.Second

const howToInstall = `Either of these will do:
  - install the server, for instance: apt-get install redis-server, brew install redis
  - set WORKLEASE_TEST_REDIS_ADDR to the host:port of a running one, which the tests may fill`

var shared = sync.OnceValues(func() (*server, error) {
	if addr := os.Getenv("WORKLEASE_TEST_REDIS_ADDR"); addr != "" {
		s := &server{addr: addr}
		return s, s.await()
	}
	return start(plain...)
})

// plain makes a server as nobody has configured it, but for the snapshots, which it does not take.
var plain = []string{"--save", ""}

// Addr returns the address of the server that all tests of the process share. The first call starts it.
func Addr(tb testing.TB) string {
	tb.Helper()
	s, err := shared()
	if err != nil {
		tb.Fatalf("no Redis to test with: %v", err)
	}
	return s.addr
}

// Server is a server of one test, which may do with it what it likes, from one goroutine at a time. It ends with the test.
type Server struct {
	*server
	tb testing.TB
}

// New starts a server that takes no snapshots, with more arguments.
func New(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return newServer(tb, append(plain[:len(plain):len(plain)], args...)...)
}

func newServer(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s, err := start(args...)
	if err != nil {
		tb.Fatalf("starting a server: %v", err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(s.stop("KILL"), os.RemoveAll(s.dir)); err != nil {
			tb.Errorf("removing the server: %v", err)
		}
	})
	return &Server{server: s, tb: tb}
}

// NewSentinel starts a Sentinel with more lines for its configuration.
func NewSentinel(tb testing.TB, lines ...string) *Server {
	tb.Helper()
	config := filepath.Join(tb.TempDir(), "sentinel.conf") // which it writes to
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	return newServer(tb, config, "--sentinel")
}

// Addr returns where the server listens, also while it is down.
func (s *Server) Addr() string { return s.addr }

// Port returns the port of Addr.
func (s *Server) Port() string { return s.port }

// Kill ends the server as the kernel does that of a machine without memory. It is of no effect on one that is down.
func (s *Server) Kill() {
	s.tb.Helper()
	if err := s.stop("KILL"); err != nil {
		s.tb.Fatal(err)
	}
}

// Pause stops the server in its tracks, until Resume. Its connections stay open.
func (s *Server) Pause() { s.signal("STOP") }

// Resume ends Pause.
func (s *Server) Resume() { s.signal("CONT") }

func (s *Server) signal(name string) {
	s.tb.Helper()
	if _, err := io.WriteString(s.control, name+"\n"); err != nil {
		s.tb.Fatal(err)
	}
}

// Start starts the server again after Kill, on the same port and with what it has saved.
func (s *Server) Start() {
	s.tb.Helper()
	if err := s.start(); err != nil {
		s.tb.Fatal(err)
	}
}

type server struct {
	addr, port string
	dir        string
	args       []string
	cmd        *exec.Cmd // nil while it is down
	control    io.WriteCloser
}

func start(args ...string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, err
	}
	s := &server{addr: net.JoinHostPort("127.0.0.1", port), port: port, dir: dir, args: args}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// runScript runs a command and sends it the signals whose names it reads, one a line. When its input ends, which
// is what the death of the test process looks like, it removes the folder in $1 and kills the command: in this
// order, since it is ended itself when the command has. The shell is the command's parent, so the process ID can't
// be reused before wait has returned.
const runScript = `trap '' INT
dir=$1
shift
exec 5<&0
"$@" </dev/null 5<&- &
pid=$!
{
	while read -r signal; do kill -s "$signal" "$pid"; done
	rm -rf -- "$dir"
	kill -s KILL "$pid"
} <&5 2>/dev/null &
watcher=$!
exec 5<&-
wait "$pid"
code=$?
kill "$watcher" 2>/dev/null
exit "$code"`

func (s *server) start() error {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, howToInstall)
	}
	command := append([]string{"-c", runScript, "run", s.dir, bin}, s.args...)
	command = append(command, "--port", s.port, "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", filepath.Join(s.dir, "log"))
	cmd := exec.Command("sh", command...)
	control, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.control = cmd, control
	if err := s.await(); err != nil {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log")) // if there is one
		return errors.Join(fmt.Errorf("%w\n%s", err, log), s.stop("KILL"))
	}
	return nil
}

func (s *server) stop(signal string) error {
	if s.cmd == nil {
		return nil
	}
	if _, err := io.WriteString(s.control, signal+"\n"); err != nil {
		return err
	}
	err := s.cmd.Wait() // also closes control
	s.cmd = nil
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return nil
	}
	return err
}

// await returns when the server answers a ping.
func (s *server) await() error {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := s.ping()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited in vain for Redis at %s: %w", s.addr, err)
		}
	}
}

func (s *server) ping() (err error) {
	conn, err := net.DialTimeout("tcp", s.addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "+PONG") && !strings.HasPrefix(line, "-NOAUTH") {
		err = fmt.Errorf("it says %q", line)
	}
	return err
}

func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, errors.Join(err, listener.Close())
}
