package pgtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// How long a server may take for a step before the test fails. Machines that run tests are busy.
const patience = 60 * time.Second

// Settings of every cluster. What a caller adds comes after these and wins.
const baseSettings = `
listen_addresses = '127.0.0.1'
unix_socket_permissions = 0700
shared_buffers = 16MB
max_connections = 200
log_line_prefix = '%m [%p] %q%a '
`

// cluster is a data directory with the postgres that runs on it. Its methods are not safe for
// concurrent use.
type cluster struct {
	bin      string
	dir      *workdir
	settings []string
	password string
	port     int
	log      *os.File
	proc     *process // nil while the server is down
}

func newCluster(bin string, settings []string) (_ *cluster, err error) {
	from, err := templateFor(bin)
	if err != nil {
		return nil, err
	}
	dir, err := newWorkdir("worklease-pg-*")
	if err != nil {
		return nil, err
	}
	c := &cluster{bin: bin, dir: dir, settings: settings, password: from.password}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.remove())
		}
	}()
	c.log, err = os.OpenFile(filepath.Join(dir.path, "log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := dir.do(c.log, "cp", "-R", from.data, c.data()); err != nil {
		return nil, fmt.Errorf("copying %s: %w\n%s", from.data, err, c.logged())
	}
	// Somebody may have taken the port since it was found free; then another one is tried.
	for attempt := 1; ; attempt++ {
		if c.port, err = freePort(); err != nil {
			return nil, err
		}
		if err = c.start(); err == nil || attempt == 3 || portIsFree(c.port) {
			return c, err
		}
	}
}

func (c *cluster) data() string { return filepath.Join(c.dir.path, "data") }

// start starts the server and returns when it accepts connections.
func (c *cluster) start() error {
	conf := fmt.Sprintf("%sport = %d\nunix_socket_directories = '%s'\n%s\n",
		baseSettings, c.port, c.dir.path, strings.Join(c.settings, "\n"))
	// A file of its own, so that nothing piles up; postgresql.auto.conf, thus ALTER SYSTEM, still wins.
	if _, err := c.dir.write("data/postgresql.conf", conf); err != nil {
		return err
	}
	// Nothing runs here any more, so that what a killed server left behind can only mislead.
	pidfile := filepath.Join(c.data(), "postmaster.pid")
	if err := os.Remove(pidfile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	p, err := c.dir.run(c.log, "QUIT", filepath.Join(c.bin, "postgres"), "-D", c.data())
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; {
		switch err := p.wait(5 * time.Millisecond); {
		case !errors.Is(err, errTimeout):
			return fmt.Errorf("postgres ended while it started: %w\n%s", err, c.logged())
		case isReady(pidfile):
			c.proc = p
			return nil
		case time.Now().After(deadline):
			err := fmt.Errorf("postgres is not ready after %v\n%s", patience, c.logged())
			return errors.Join(err, p.stop("QUIT", patience))
		}
	}
}

// isReady reads the server's state where pg_ctl does too, in the eighth line of its lock file.
func isReady(pidfile string) bool {
	content, err := os.ReadFile(pidfile)
	if err != nil {
		return false
	}
	lines := strings.Split(string(content), "\n")
	return len(lines) >= 8 && strings.TrimSpace(lines[7]) == "ready"
}

// stop ends the server with a signal and waits for all of its processes: backends outlive their
// postmaster when that is killed, and no new one starts while they do.
func (c *cluster) stop(signal string) error {
	if c.proc == nil {
		return nil
	}
	p := c.proc
	c.proc = nil
	if err := p.stop(signal, patience); err != nil {
		return fmt.Errorf("%w\n%s", err, c.logged())
	}
	return nil
}

// remove stops the server the fastest way and removes everything.
func (c *cluster) remove() error {
	err := c.stop("QUIT")
	if c.log != nil {
		err = errors.Join(err, c.log.Close())
	}
	return errors.Join(err, c.dir.remove())
}

func (c *cluster) url() *url.URL {
	return &url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", c.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
}

// logged returns the end of the server's log.
func (c *cluster) logged() string {
	content, err := os.ReadFile(c.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-8<<10):])
}

// freePort picks a port below those that systems hand out for outgoing connections, so that nobody
// takes it by chance while a server is down between stop and start.
func freePort() (int, error) {
	for range 100 {
		n, err := rand.Int(rand.Reader, big.NewInt(12000))
		if err != nil {
			return 0, err
		}
		if port := 20000 + int(n.Int64()); portIsFree(port) {
			return port, nil
		}
	}
	return 0, errors.New("no free port found between 20000 and 32000")
}

func portIsFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
