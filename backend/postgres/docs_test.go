package postgres_test

import (
	"database/sql"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/aetomala/worklease/internal/pgtest"
)

// What docs/postgres.md tells people to run, can be run, as written and in that order.
func TestStatementsInTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	db := pgtest.Open(t, "pgx", pgtest.Schema(t))
	createTable(t, db)
	tx := begin(t, db) // nothing of it stays: roles are the server's
	exec(t, tx, "CREATE ROLE worklease_app")
	exec(t, tx, `INSERT INTO worklease_leases (work_id, holder_id, expires_at)
		VALUES ('report-2026', 'a', now() + interval '1 h'), ('lapsed', 'a', now() - interval '1 h')`)
	ran := 0
	for i, block := range strings.Split(string(page), "```") {
		if sql, found := strings.CutPrefix(block, "sql\n"); found && i%2 == 1 {
			for statement := range strings.SplitSeq(strings.TrimSpace(sql), ";") {
				if statement = strings.TrimSpace(statement); statement != "" {
					result, err := tx.Exec(statement)
					if err != nil {
						t.Fatalf("%s: %v", statement, err)
					}
					// Those that look at the leases find the one that is held, or the one that lapsed.
					if n, _ := result.RowsAffected(); n != 1 && strings.Contains(statement, "FROM worklease_leases WHERE") {
						t.Errorf("%s: %d rows", statement, n)
					}
					ran++
				}
			}
		}
	}
	if ran < 10 {
		t.Errorf("found %d statements", ran)
	}
	if n := scan[int](t, tx, "SELECT count(*) FROM worklease_leases WHERE expires_at > clock_timestamp()"); n != 0 {
		t.Error("the lease that was to be ended by hand is live")
	}
	if n := scan[int](t, tx, "SELECT max(fencing_token) FROM worklease_leases"); n <= 1000000 {
		t.Errorf("the token is %d: the sequence was not moved", n)
	}
}

// The statements in docs/production.md let a holder write, and its predecessor not once it has.
func TestFencingPatternInTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Fatalf("found %d statements, want the table and the fence", len(blocks))
	}
	table, fence := string(blocks[0][1]), string(blocks[1][1])
	sideBySide(t, func(t *testing.T, driver string) {
		db := pgtest.Open(t, driver, pgtest.Schema(t))
		exec(t, db, table)
		for _, step := range []struct {
			work    string
			token   int64
			allowed bool
		}{
			{"w", 7, true}, {"w", 7, true}, {"w", 9, true}, {"w", 8, false}, {"w", 9, true}, {"other", 8, true},
		} {
			var highest int64
			err := db.QueryRow(fence, step.work, step.token).Scan(&highest)
			if refused := errors.Is(err, sql.ErrNoRows); refused == step.allowed || err != nil && !refused {
				t.Errorf("%s with token %d: %v, allowed is %t", step.work, step.token, err, step.allowed)
			}
		}
	})
}
