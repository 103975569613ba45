package pgtest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Schema returns a DSN of the shared server whose search_path is a new schema, which is dropped with
// all it holds when the test ends. It is the cheapest way for a test to be alone.
func Schema(tb testing.TB) string {
	tb.Helper()
	return Start(tb).Schema(tb)
}

// Database returns the DSN of a new database of the shared server, dropped when the test ends: for
// ALTER DATABASE, and for PgBouncer, which does not pass a search_path on. It costs about 50 ms.
func Database(tb testing.TB) string {
	tb.Helper()
	return Start(tb).Database(tb)
}

// Schema is [Schema] on this server.
func (s *Server) Schema(tb testing.TB) string {
	tb.Helper()
	name := uniqueName(tb)
	s.exec(tb, "CREATE SCHEMA "+name)
	tb.Cleanup(func() {
		// A test that left a transaction open must fail, not hang.
		s.exec(tb, "SET lock_timeout = '10s'; DROP SCHEMA "+name+" CASCADE")
	})
	return s.DSN("search_path=" + name)
}

// Database is [Database] on this server.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	name := uniqueName(tb)
	s.exec(tb, "CREATE DATABASE "+name)
	tb.Cleanup(func() { s.exec(tb, "DROP DATABASE "+name+" WITH (FORCE)") })
	u := *s.url
	u.Path = "/" + name
	return u.String()
}

func (s *Server) exec(tb testing.TB, sql string) {
	tb.Helper()
	err := s.once(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// uniqueName returns a name that needs no quotes and tells in pg_stat_activity whose it is. Its end
// is random because other test processes may use the same server.
func uniqueName(tb testing.TB) string {
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(tb.Name()))
	return "t_" + readable[:min(len(readable), 40)] + "_" + strings.ToLower(rand.Text()[:12])
}
