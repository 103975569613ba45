package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
)

// querier is a pool or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// shape is what a session finds of the table and the sequence, and what it is itself.
type shape struct {
	Role      string   // quoted, as the other names here are
	Path      []string // the schemas of the search_path that exist and may be used
	Setting   string   // the search_path as it was set
	Isolation string
	Encoding  string // of what the client sends and gets
	Standby   bool
	ReadOnly  bool
	Elsewhere []string // schemas with a table of that name that the session does not see
	Table     *tableShape
	Sequence  *sequenceShape // in the table's schema if there is a table, otherwise the one in sight
	Seen      string         // the schema of the sequence that statements get

	highest int64 // token in the table
	issued  int64 // token that the sequence has handed out last
}

type tableShape struct {
	Schema, Name string
	Kind         string
	Lacking      []string // rights
	Keyed        bool     // work_id is unique, in a way that ON CONFLICT can use
	OldIndex     string
	Options      []string
	Columns      []columnShape
	Checks       []checkShape
}

type columnShape struct {
	Name, Type, Default string
	NotNull, Filled     bool // Filled: an INSERT may leave it out
}

type checkShape struct {
	Name, Definition string
	Valid            bool
}

type sequenceShape struct {
	OID                     int64
	Schema, Name, Shown     string // Shown: as the server writes it in a default
	Type                    string
	Increment, Max, Cache   int64
	Cycle, Usable, Readable bool
}

// shapeQuery has no parameters, so that lib/pq sends it in one message, which no pooler can tear apart.
// What it returns is JSON for want of a type that all drivers scan alike.
const shapeQuery = `
WITH t AS (
  SELECT c.oid, n.nspname, c.relkind, c.reloptions
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
  WHERE c.oid = to_regclass('worklease_leases')
), s AS (
  SELECT c.oid, n.nspname, q.*
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_sequence AS q ON q.seqrelid = c.oid
  WHERE c.oid = to_regclass(coalesce((SELECT quote_ident(nspname) || '.' FROM t), '') || 'worklease_fencing_seq')
)
SELECT json_build_object(
  'role', quote_ident(current_user),
  'path', (SELECT json_agg(quote_ident(p)) FROM unnest(current_schemas(false)) AS p),
  'setting', current_setting('search_path'),
  'isolation', current_setting('default_transaction_isolation'),
  -- A database in SQL_ASCII takes all bytes as they are.
  'encoding', CASE WHEN current_setting('server_encoding') = 'SQL_ASCII' THEN 'UTF8' ELSE current_setting('client_encoding') END,
  'standby', pg_is_in_recovery(),
  'readOnly', current_setting('transaction_read_only') = 'on',
  'elsewhere', (
    SELECT json_agg(quote_ident(n.nspname) ORDER BY n.nspname)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relname = 'worklease_leases' AND NOT pg_table_is_visible(c.oid)),
  'seen', (
    SELECT quote_ident(n.nspname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass('worklease_fencing_seq')),
  'table', (SELECT json_build_object(
    'schema', quote_ident(t.nspname),
    'name', quote_ident(t.nspname) || '.worklease_leases',
    'kind', t.relkind,
    'options', t.reloptions,
    'lacking', (
      SELECT json_agg(r) FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r
      WHERE NOT has_table_privilege(t.oid, r)),
    'keyed', EXISTS (
      SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
      WHERE i.indrelid = t.oid AND a.attname = 'work_id' AND i.indnkeyatts = 1
        AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL),
    'oldIndex', (
      SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
      FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
      WHERE i.indrelid = t.oid AND c.relname = 'idx_worklease_leases_updated_at'),
    'columns', (
      SELECT json_agg(json_build_object(
        'name', a.attname,
        'type', format_type(a.atttypid, a.atttypmod),
        'default', pg_get_expr(d.adbin, d.adrelid),
        'notNull', a.attnotnull,
        'filled', NOT a.attnotnull OR d.adbin IS NOT NULL OR a.attidentity <> '') ORDER BY a.attnum)
      FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
      WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'checks', (
      SELECT json_agg(json_build_object(
        'name', c.conname, 'definition', pg_get_constraintdef(c.oid), 'valid', c.convalidated) ORDER BY c.conname)
      FROM pg_constraint AS c WHERE c.conrelid = t.oid AND c.contype = 'c')) FROM t),
  'sequence', (SELECT json_build_object(
    'oid', s.oid::bigint,
    'schema', quote_ident(s.nspname),
    'name', quote_ident(s.nspname) || '.worklease_fencing_seq',
    'shown', s.oid::regclass::text,
    'type', format_type(s.seqtypid, NULL),
    'increment', s.seqincrement,
    'max', s.seqmax,
    'cache', s.seqcache,
    'cycle', s.seqcycle,
    'usable', has_sequence_privilege(s.oid, 'USAGE'),
    'readable', has_sequence_privilege(s.oid, 'SELECT')) FROM s)
)::text`

// look reads the catalog and, where the session may, how the sequence stands to the tokens. The latter
// takes a scan of the table. No lock is taken but the one that any reader takes.
func look(ctx context.Context, q querier) (*shape, error) {
	var text string
	if err := q.QueryRowContext(ctx, shapeQuery).Scan(&text); err != nil {
		return nil, err
	}
	found := new(shape)
	if err := json.Unmarshal([]byte(text), found); err != nil {
		return nil, err
	}
	query := found.tokensQuery()
	if query == "" {
		return found, nil
	}
	return found, q.QueryRowContext(ctx, query).Scan(&found.highest, &found.issued)
}

// tokensQuery is empty if there is nothing to compare, or no right to.
func (s *shape) tokensQuery() string {
	t := s.Table
	if t == nil || t.lacks("SELECT") || t.column("fencing_token") == nil {
		return ""
	}
	const highest = "SELECT coalesce((SELECT max(fencing_token) FROM %s), 0)"
	switch q := s.Sequence; {
	case q == nil:
		return fmt.Sprintf(highest+", 0", t.Name)
	case q.Readable:
		return fmt.Sprintf(highest+", last_value - (NOT is_called)::int FROM %s", t.Name, q.Name)
	case q.Usable && !s.ReadOnly && !s.Standby:
		// The rights that the store needs do not include reading the sequence. A gap means nothing.
		return fmt.Sprintf(highest+", nextval(%d::regclass) - 1", t.Name, q.OID)
	}
	return ""
}

func (t *tableShape) lacks(right string) bool {
	for _, r := range t.Lacking {
		if r == right {
			return true
		}
	}
	return false
}

func (t *tableShape) column(name string) *columnShape {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return &t.Columns[i]
		}
	}
	return nil
}

func (t *tableShape) check(name string) *checkShape {
	for i := range t.Checks {
		if t.Checks[i].Name == name {
			return &t.Checks[i]
		}
	}
	return nil
}
