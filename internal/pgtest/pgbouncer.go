package pgtest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// NewBouncer starts PgBouncer in front of the database that dsn leads to, and returns the DSN to reach
// it by way of the pooler. It pools by transaction, with at most 20 server connections; settings are
// more lines for the [pgbouncer] section, and win:
//
//	pgtest.NewBouncer(t, pgtest.Database(t), "default_pool_size = 2")
//
// Parameters that PgBouncer can't set, search_path above all, are ignored: use [Database], not
// [Schema]. max_prepared_statements needs PgBouncer 1.21, and an older one refuses to start with it.
//
// The binary is the one in WORKLEASE_TEST_PGBOUNCER, or else the one that is installed.
func NewBouncer(tb testing.TB, dsn string, settings ...string) string {
	tb.Helper()
	binary, err := bouncerBinary()
	if err != nil {
		tb.Fatal(err)
	}
	database, err := parseDSN(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	b := &bouncer{binary: binary, database: database, settings: settings}
	b.dir, err = newWorkdir("worklease-pgbouncer-*")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.remove(); err != nil {
			tb.Errorf("removing PgBouncer: %v", err)
		}
	})
	for attempt := 1; ; attempt++ {
		if b.port, err = freePort(); err != nil {
			tb.Fatal(err)
		}
		if err = b.start(); err == nil {
			break
		}
		// Another attempt only if somebody has taken the port.
		if attempt == 3 || portIsFree(b.port) {
			tb.Fatal(err)
		}
	}
	return WithParams(withHost(dsn, b.address()), "sslmode=disable")
}

func bouncerBinary() (string, error) {
	if path := os.Getenv("WORKLEASE_TEST_PGBOUNCER"); path != "" {
		return path, nil
	}
	// Packages put it among the programs for root, which others have not on their PATH.
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer",
		"/opt/homebrew/bin/pgbouncer", "/usr/local/bin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New(`no pgbouncer to test with. Any of these will do:
  - install it, for instance: apt-get install pgbouncer, brew install pgbouncer
  - set WORKLEASE_TEST_PGBOUNCER to the program`)
}

type bouncer struct {
	binary   string
	database *url.URL
	settings []string
	dir      *workdir
	port     int
	proc     *process
}

func (b *bouncer) address() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port))
}

// start starts PgBouncer and returns when it accepts connections.
func (b *bouncer) start() error {
	ini, err := b.configure()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(b.dir.path, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	// There is nothing to save in a pooler, and what the gentler signals mean differs by version.
	p, err := b.dir.run(log, "KILL", b.binary, ini)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; {
		if err := p.wait(5 * time.Millisecond); !errors.Is(err, errTimeout) {
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("PgBouncer ended while it started: %w\n%s", err, said)
		}
		if conn, err := net.Dial("tcp", b.address()); err == nil {
			b.proc = p
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("PgBouncer is not ready after %v", patience), p.stop("KILL", patience))
		}
	}
}

// configure writes the files that PgBouncer reads.
func (b *bouncer) configure() (string, error) {
	user := b.database.User.Username()
	password, _ := b.database.User.Password()
	server, err := hostport(b.database.String())
	if err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return "", err
	}
	auth := "plain"
	if password == "" {
		auth = "trust" // as the server does then
	}
	users, err := b.dir.write("users", quoted(user)+" "+quoted(password)+"\n")
	if err != nil {
		return "", err
	}
	ini := fmt.Sprintf(`[databases]
* = host=%s port=%s

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = %s
auth_file = %s
pool_mode = transaction
max_client_conn = 500
default_pool_size = 20
ignore_startup_parameters = extra_float_digits,options,search_path
%s
`, host, port, b.port, auth, users, strings.Join(b.settings, "\n"))
	return b.dir.write("pgbouncer.ini", ini)
}

// quoted is how a value stands in PgBouncer's file of users.
func quoted(value string) string { return `"` + strings.ReplaceAll(value, `"`, `""`) + `"` }

func (b *bouncer) remove() error {
	var err error
	if b.proc != nil {
		err = b.proc.stop("KILL", patience)
	}
	return errors.Join(err, b.dir.remove())
}
