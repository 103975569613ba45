package pgtest

import (
	"database/sql"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              // the driver "postgres"
)

// variant is a driver with the settings that change how it talks to the server.
type variant struct {
	name   string
	driver string
	params []string
}

var variants = []variant{
	{"pq", "postgres", nil},
	{"pq-binary", "postgres", []string{"binary_parameters=yes"}},
	{"pgx", "pgx", nil},
	{"pgx-cache_describe", "pgx", []string{"default_query_exec_mode=cache_describe"}},
	{"pgx-describe_exec", "pgx", []string{"default_query_exec_mode=describe_exec"}},
	{"pgx-exec", "pgx", []string{"default_query_exec_mode=exec"}},
	{"pgx-simple_protocol", "pgx", []string{"default_query_exec_mode=simple_protocol"}},
}

// Drivers lists the names that [Open] takes: lib/pq and pgx, each in every mode in which it can talk
// to a server.
func Drivers() []string {
	names := make([]string, len(variants))
	for i, v := range variants {
		names[i] = v.name
	}
	return names
}

// Open opens a pool that is closed when the test ends, after the cleanups of what uses it.
func Open(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	for _, v := range variants {
		if v.name != driver {
			continue
		}
		db, err := sql.Open(v.driver, WithParams(dsn, v.params...))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			if err := db.Close(); err != nil {
				tb.Errorf("closing the pool: %v", err)
			}
		})
		return db
	}
	tb.Fatalf("no driver %q, there are %v", driver, Drivers())
	return nil
}

// WithParams adds connection parameters of the form "key=value" to a DSN. What is no parameter of the
// driver is set for the session, by lib/pq and pgx alike.
func WithParams(dsn string, params ...string) string {
	return edit(dsn, func(u *url.URL) {
		query := u.Query()
		for _, p := range params {
			key, value, _ := strings.Cut(p, "=")
			query.Set(key, value)
		}
		u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // pgx takes a plus for a plus
	})
}

// withHost returns the DSN of the same database reached at another address.
func withHost(dsn, hostport string) string {
	return edit(dsn, func(u *url.URL) { u.Host = hostport })
}

// hostport returns the address that a DSN leads to.
func hostport(dsn string) (string, error) {
	u, err := parseDSN(dsn)
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

func edit(dsn string, change func(*url.URL)) string {
	u, err := parseDSN(dsn)
	if err != nil {
		panic(err) // every DSN here comes from this package
	}
	change(u)
	return u.String()
}

func parseDSN(dsn string) (*url.URL, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("not a URL") // not err, which holds the password
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Host == "" {
		return nil, errors.New("not a URL of the form postgres://user:password@host:port/database")
	}
	return u, nil
}
