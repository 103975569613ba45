package postgres_test

import (
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// oldShapes are the tables that Migrate may find, as files of testdata; "" is none at all.
var oldShapes = []string{"", "per_row_tokens", "clean_handoff", "exits_beside_clean_handoff"}

// oldTable makes a schema with a table of such a shape, and a pool to see it with.
func oldTable(t testing.TB, shape string) (dsn string, admin *sql.DB) {
	t.Helper()
	dsn = pgtest.Schema(t)
	admin = pgtest.Open(t, "pgx", dsn)
	fillOld(t, admin, shape)
	return dsn, admin
}

func fillOld(t testing.TB, db *sql.DB, shape string) {
	t.Helper()
	if shape == "" {
		return
	}
	script, err := os.ReadFile("testdata/" + shape + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db, string(script))
}

// onOldShapes runs a test on each.
func onOldShapes(t *testing.T, test func(t *testing.T, shape string)) {
	t.Helper()
	for _, shape := range oldShapes {
		name := shape
		if name == "" {
			name = "nothing"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shape)
		})
	}
}

func migrate(t testing.TB, db *sql.DB) {
	t.Helper()
	if err := postgres.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
}

func lines(t testing.TB, db *sql.DB, query string) (list []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		list = append(list, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// definition describes the table and the sequence as the catalog has them, apart from the order of the
// columns.
func definition(t testing.TB, db *sql.DB) string {
	t.Helper()
	return strings.Join(lines(t, db, `
		SELECT line FROM (
		  SELECT 'column ' || attname || ' ' || format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' not null' ELSE '' END
		    || coalesce(' default ' || pg_get_expr(adbin, adrelid), '')
		  FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
		  WHERE attrelid = 'worklease_leases'::regclass AND attnum > 0 AND NOT attisdropped
		  UNION ALL
		  SELECT 'constraint ' || conname || ' ' || contype::text || ' ' || pg_get_constraintdef(oid) || ' ' || convalidated
		  FROM pg_constraint WHERE conrelid = 'worklease_leases'::regclass
		  UNION ALL
		  SELECT 'index ' || indexrelid::regclass FROM pg_index WHERE indrelid = 'worklease_leases'::regclass
		  UNION ALL
		  SELECT 'option ' || unnest(reloptions) FROM pg_class WHERE oid = 'worklease_leases'::regclass
		  UNION ALL
		  SELECT 'sequence ' || concat_ws(' ', seqtypid::regtype, seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle)
		  FROM pg_sequence WHERE seqrelid = 'worklease_fencing_seq'::regclass
		) AS described (line) ORDER BY line`), "\n")
}

// physical changes when anything is written to the table's or the sequence's place in the catalog, or
// to the sequence.
func physical(t testing.TB, db *sql.DB) string {
	t.Helper()
	return scan[string](t, db, `
		SELECT concat_ws(' ', l.xmin, l.relfilenode, s.xmin, s.relfilenode, q.xmin, v.last_value, v.is_called)
		FROM pg_class AS l, pg_class AS s, pg_sequence AS q, worklease_fencing_seq AS v
		WHERE l.oid = 'worklease_leases'::regclass AND s.oid = 'worklease_fencing_seq'::regclass AND q.seqrelid = s.oid`)
}

// nothingLeft fails the test if another Migrate finds something to do.
func nothingLeft(t testing.TB, db *sql.DB) {
	t.Helper()
	before := physical(t, db)
	migrate(t, db)
	if after := physical(t, db); after != before {
		t.Errorf("another run changed %s to %s", before, after)
	}
}

const rowsQuery = `
	SELECT concat_ws(' | ', work_id, holder_id, fencing_token, expires_at, checkpoint, acquired_at, updated_at)
	FROM worklease_leases ORDER BY work_id`

// sequenceIsAhead fails the test if the sequence would hand out a token that is not above all others.
func sequenceIsAhead(t testing.TB, db *sql.DB) {
	t.Helper()
	if !scan[bool](t, db, `SELECT nextval('worklease_fencing_seq') > coalesce((SELECT max(fencing_token) FROM worklease_leases), 0)`) {
		t.Error("the sequence is behind the tokens")
	}
}

// sqlState is how a caller finds the server's code in an error of any driver.
func sqlState(err error) string {
	if coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return coded.SQLState()
	}
	return ""
}
