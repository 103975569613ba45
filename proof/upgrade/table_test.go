package upgrade

import (
	"database/sql"
	"os"
	"testing"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/model"
)

// each is how many leases of each kind are added to a table.
const each = 40

// design is that of an older version's table.
type design struct {
	name     string
	released string // what tells a released lease from one that lapsed
	usable   bool   // by holders of this version, as it is
}

// designs are from the oldest on.
var designs = []design{
	{"per_row_tokens", "", false},
	{"clean_handoff", "clean_handoff = true", false},
	{"exits_beside_clean_handoff", "clean_handoff = true, exit_mode = (ARRAY['finished', 'abandoned', 'retired', NULL])[1 + fencing_token % 4]", true},
}

// fill makes a table, with what older holders have left in it.
func fill(t *testing.T, db *sql.DB, d design) {
	t.Helper()
	script, err := os.ReadFile("../../backend/postgres/testdata/" + d.name + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, db, string(script))
	execute(t, db, `
		INSERT INTO worklease_leases (work_id, holder_id, fencing_token, expires_at, checkpoint)
		SELECT kind || ' ' || i, 'old holder ' || i, 1 + i % 90, now() + ttl, convert_to('state ' || i, 'UTF8')
		FROM generate_series(1, $1::int) AS i,
			(VALUES ('live', interval '1 hour'), ('released', interval '-1 hour'), ('lapsed', interval '-1 hour')) AS of (kind, ttl)`, each)
	if d.released != "" {
		execute(t, db, "UPDATE worklease_leases SET "+d.released+" WHERE work_id LIKE 'released %'")
	}
}

func execute(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

var exits = map[string]backend.ExitMode{
	"none":      backend.ExitNone,
	"finished":  backend.ExitFinished,
	"abandoned": backend.ExitAbandoned,
	"retired":   backend.ExitRetired,
	"expired":   backend.ExitExpired,
}

// read returns the rows of a table of any design. What a design does not have was never said.
func read(t *testing.T, db *sql.DB) map[string]model.Row {
	t.Helper()
	stored, err := db.QueryContext(t.Context(), `
		SELECT work_id, holder_id, fencing_token, expires_at, coalesce(convert_from(checkpoint, 'UTF8'), ''),
			coalesce(to_jsonb(l) ->> 'exit_mode', 'none'), coalesce(to_jsonb(l) ->> 'prev_exit_mode', 'none'),
			coalesce(to_jsonb(l) ->> 'prev_holder_id', '')
		FROM worklease_leases AS l`)
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Close()
	rows := make(map[string]model.Row)
	for stored.Next() {
		var (
			work, exit, prevExit string
			row                  model.Row
		)
		if err := stored.Scan(&work, &row.HolderID, &row.Token, &row.ExpiresAt, &row.State, &exit, &prevExit, &row.PrevHolderID); err != nil {
			t.Fatal(err)
		}
		row.Exit, row.PrevExit = exits[exit], exits[prevExit]
		rows[work] = row
	}
	if err := stored.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}
