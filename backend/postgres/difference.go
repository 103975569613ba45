package postgres

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// tableLock is a lock on the table, weakest first.
type tableLock int

const (
	shareUpdateExclusive tableLock = iota // keeps out other changes of the table's definition
	shareRowExclusive                     // and all that writes rows
	accessExclusive                       // and all that reads them
)

func (l tableLock) String() string {
	return [...]string{"SHARE UPDATE EXCLUSIVE", "SHARE ROW EXCLUSIVE", "ACCESS EXCLUSIVE"}[l]
}

// difference is a point in which a table or its sequence is not as [Schema] has it.
type difference struct {
	what     string
	fix      []string // statements; without any, it takes a person
	lock     tableLock
	harmless bool // except to speed
}

type column struct {
	name, typ, def string // as the catalog shows them
	notNull        bool
}

const timestamptz = "timestamp with time zone"

var columns = []column{
	{name: "work_id", typ: "text", notNull: true},
	{name: "holder_id", typ: "text", notNull: true},
	{name: "fencing_token", typ: "bigint", notNull: true}, // and a default that depends on the schema
	{name: "expires_at", typ: timestamptz, notNull: true},
	{name: "checkpoint", typ: "bytea"},
	{name: "exit_mode", typ: "text"},
	{name: "prev_exit_mode", typ: "text", def: "'none'::text", notNull: true},
	{name: "prev_holder_id", typ: "text"},
	{name: "acquired_at", typ: timestamptz, def: "now()", notNull: true},
	{name: "updated_at", typ: timestamptz, def: "now()", notNull: true},
}

var checks = []struct {
	name, column string
	values       []string
}{
	{"worklease_leases_exit_mode_check", "exit_mode", []string{"finished", "abandoned", "retired"}},
	{"worklease_leases_prev_exit_mode_check", "prev_exit_mode", []string{"none", "expired", "finished", "abandoned", "retired"}},
}

var options = []string{"fillfactor=70", "toast_tuple_target=256", "autovacuum_vacuum_scale_factor=0.02", "autovacuum_vacuum_cost_delay=0"}

// differences lists them in the order in which they can be removed.
func (s *shape) differences() []difference {
	switch t := s.Table; {
	case t == nil:
		return []difference{{what: s.nowhere(), fix: statementsOf(Schema)}}
	case t.Kind != "r":
		return []difference{{what: t.Name + " is no ordinary table"}}
	}
	return slices.Concat(s.sequenceDifferences(), s.columnDifferences(), s.checkDifferences(), s.otherDifferences())
}

func (s *shape) nowhere() string {
	what := fmt.Sprintf("no table worklease_leases in search_path %s, which leads to ", s.Setting)
	if len(s.Path) == 0 {
		what += "no schema that exists and that " + s.Role + " may use"
	} else {
		what += "schema " + strings.Join(s.Path, ", ")
	}
	if len(s.Elsewhere) > 0 {
		what += fmt.Sprintf("; there is one in schema %s: name it in search_path, and GRANT USAGE ON SCHEMA %s TO %s",
			strings.Join(s.Elsewhere, ", "), s.Elsewhere[0], s.Role)
	}
	return what
}

func (s *shape) sequenceDifferences() (list []difference) {
	name := s.Table.Schema + ".worklease_fencing_seq"
	catchUp := func(what string) {
		list = append(list, difference{
			what: what,
			fix:  []string{fmt.Sprintf("SELECT setval(%s, %d)", literal(name), s.highest)},
			lock: shareRowExclusive,
		})
	}
	q := s.Sequence
	if q == nil {
		list = append(list, difference{
			what: "no sequence " + name,
			fix:  []string{"CREATE SEQUENCE " + name + " AS BIGINT CACHE 1"},
			lock: accessExclusive,
		})
		if s.highest > 0 {
			catchUp("tokens from before the sequence")
		}
		return list
	}
	if q.Type != "bigint" || q.Increment != 1 || q.Max != math.MaxInt64 || q.Cache != 1 || q.Cycle {
		list = append(list, difference{
			what: fmt.Sprintf("sequence %s is of type %s, increment %d, maximum %d, cache %d, cycle %t, "+
				"which must be bigint, 1, %d, 1 and false: later holders could get smaller tokens",
				name, q.Type, q.Increment, q.Max, q.Cache, q.Cycle, int64(math.MaxInt64)),
			fix:  []string{"ALTER SEQUENCE " + name + " AS BIGINT INCREMENT BY 1 NO MAXVALUE CACHE 1 NO CYCLE"},
			lock: shareRowExclusive,
		})
	}
	if s.issued < s.highest {
		catchUp(fmt.Sprintf("sequence %s has come to %d, behind token %d in the table", name, s.issued, s.highest))
	}
	if s.Seen != s.Table.Schema {
		list = append(list, difference{
			what: fmt.Sprintf("search_path %s leads to table %s, but to the sequence in schema %s: keep them in one schema", s.Setting, s.Table.Name, s.Seen),
		})
	}
	return list
}

func (s *shape) columnDifferences() (list []difference) {
	t := s.Table
	differs := func(what string, actions ...string) {
		d := difference{what: what, lock: accessExclusive}
		for _, a := range actions {
			d.fix = append(d.fix, "ALTER TABLE "+t.Name+" "+a)
		}
		list = append(list, d)
	}
	for _, want := range columns {
		setDefault := want.def
		if want.name == "fencing_token" {
			setDefault = "nextval(" + literal(t.Schema+".worklease_fencing_seq") + ")"
			want.def = setDefault // what no catalog shows: without the sequence, the default is wrong
			if s.Sequence != nil {
				want.def = "nextval(" + literal(s.Sequence.Shown) + "::regclass)"
			}
		}
		got := t.column(want.name)
		switch {
		case got == nil && (want.name == "fencing_token" || want.notNull && want.def == ""):
			differs("column " + want.name + " is missing, without which this is no table of leases")
			continue
		case got == nil:
			add := "ADD COLUMN " + want.name + " " + want.typ
			if want.notNull {
				add += " NOT NULL DEFAULT " + want.def
			}
			differs("column "+want.name+" is missing", add)
			continue
		case got.Type != want.typ:
			differs(fmt.Sprintf("column %s is of type %s, which must be %s", want.name, got.Type, want.typ))
		case got.Default != want.def && want.def == "":
			differs(fmt.Sprintf("column %s has a default, %s", want.name, got.Default), "ALTER COLUMN "+want.name+" DROP DEFAULT")
		case got.Default != want.def:
			differs(fmt.Sprintf("column %s has the default %q, which must be %s", want.name, got.Default, want.def),
				"ALTER COLUMN "+want.name+" SET DEFAULT "+setDefault)
		}
		switch {
		case want.notNull && !got.NotNull:
			differs("column "+want.name+" may be NULL", "ALTER COLUMN "+want.name+" SET NOT NULL")
			if want.def != "" {
				fill := fmt.Sprintf("UPDATE %s SET %s = DEFAULT WHERE %[2]s IS NULL", t.Name, want.name)
				last := &list[len(list)-1]
				last.fix = slices.Insert(last.fix, 0, fill)
			}
		case !want.notNull && got.NotNull:
			differs("column "+want.name+" may not be NULL", "ALTER COLUMN "+want.name+" DROP NOT NULL")
		}
	}
	for _, c := range t.Columns {
		switch {
		case c.Name == "clean_handoff":
			differs("column clean_handoff is of an older version", "DROP COLUMN clean_handoff")
		case !c.Filled && !slices.ContainsFunc(columns, func(want column) bool { return want.name == c.Name }):
			differs(fmt.Sprintf("column %q, which worklease does not know, is NOT NULL without a default", c.Name))
		}
	}
	return list
}

func (s *shape) checkDifferences() (list []difference) {
	t := s.Table
	alter := "ALTER TABLE " + t.Name
	for _, want := range checks {
		// NOT VALID spares the lock a scan of the table; that is the next step's, under a weak one.
		add := fmt.Sprintf("%s ADD CONSTRAINT %s CHECK (%s IN ('%s')) NOT VALID", alter, want.name, want.column, strings.Join(want.values, "', '"))
		got := t.check(want.name)
		switch {
		case got == nil:
			list = append(list, difference{what: "constraint " + want.name + " is missing", fix: []string{add}, lock: accessExclusive})
		case !sameValues(got.Definition, want.values):
			list = append(list, difference{
				what: fmt.Sprintf("constraint %s is %s, which must allow %s", want.name, got.Definition, strings.Join(want.values, ", ")),
				fix:  []string{alter + " DROP CONSTRAINT " + want.name, add},
				lock: accessExclusive,
			})
		case !got.Valid:
			list = append(list, difference{
				what: "constraint " + want.name + " is not validated",
				fix:  []string{alter + " VALIDATE CONSTRAINT " + want.name},
				lock: shareUpdateExclusive,
			})
		}
	}
	return list
}

func (s *shape) otherDifferences() (list []difference) {
	t := s.Table
	if !t.Keyed {
		list = append(list, difference{what: fmt.Sprintf("work_id is not unique: ALTER TABLE %s ADD PRIMARY KEY (work_id)", t.Name)})
	}
	if t.OldIndex != "" {
		list = append(list, difference{
			what: "index " + t.OldIndex + " makes every update write more", fix: []string{"DROP INDEX " + t.OldIndex},
			lock: accessExclusive, harmless: true,
		})
	}
	var missing []string
	for _, o := range options {
		key, _, _ := strings.Cut(o, "=")
		// A value that somebody has chosen stays.
		if !slices.ContainsFunc(t.Options, func(set string) bool { return strings.HasPrefix(set, key+"=") }) {
			missing = append(missing, o)
		}
	}
	if len(missing) > 0 {
		list = append(list, difference{
			what: "storage parameters are not set", fix: []string{"ALTER TABLE " + t.Name + " SET (" + strings.Join(missing, ", ") + ")"},
			lock: shareUpdateExclusive, harmless: true,
		})
	}
	return list
}

var quotedWord = regexp.MustCompile(`'(\w*)'`)

// sameValues compares the values in a constraint rather than its text, which is the server's own way
// of writing it.
func sameValues(definition string, want []string) bool {
	var got []string
	for _, m := range quotedWord.FindAllStringSubmatch(definition, -1) {
		got = append(got, m[1])
	}
	slices.Sort(got)
	return slices.Equal(got, slices.Sorted(slices.Values(want)))
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// statementsOf splits a script, since only some drivers take more than one statement at a time. It
// knows line comments, and no semicolon but the one at the end of a statement.
func statementsOf(script string) (list []string) {
	var code strings.Builder
	for line := range strings.Lines(script) {
		before, _, _ := strings.Cut(line, "--")
		code.WriteString(before + "\n")
	}
	for s := range strings.SplitSeq(code.String(), ";") {
		if s = strings.TrimSpace(s); s != "" {
			list = append(list, s)
		}
	}
	return list
}
