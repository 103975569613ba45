package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Check says what would fail later, all at once: a table that is missing, of an older version, or out
// of sight of search_path; rights that the role lacks; a server that is read-only or a standby; a
// default isolation level stricter than READ COMMITTED; a client_encoding that is not UTF8; a sequence
// that is behind the tokens, cached, or not a bigint; and a pooler that mixes statements up. It returns
// nil if all is well, and otherwise an error that joins one for each finding, which says what to do.
// Those that come from a driver wrap its error. opts are those that [New] gets, so that statements are
// sent as the store will send them.
//
// It is made for the start of a program: the table is read once, to compare its tokens with the
// sequence, and if two connections turn out to share a session, four of them are used at a time for up
// to a second. A mix-up is a matter of timing, so that none seen is no proof. A pool of one connection,
// or one that has none to spare, is not tested for it. Check changes nothing, except that it draws a
// token where the role may not read the sequence. What costs speed only, such as the index of older
// versions, is not reported. It is safe for concurrent use, and returns soon after ctx ends, with its
// error among the findings.
func Check(ctx context.Context, db *sql.DB, opts ...Option) error {
	if db == nil {
		return errors.New("postgres: check: the *sql.DB is nil")
	}
	b, err := New(db, opts...)
	if err != nil {
		return err
	}
	var findings []error
	err = b.promptly(ctx, "check", func(ctx context.Context) error {
		findings = b.findings(ctx)
		for i, f := range findings {
			findings[i] = failed(ctx, "check", b.cured(ctx, "check", f))
		}
		return nil
	}, nil)
	if err != nil {
		return err // what goes on by itself may be writing findings
	}
	return errors.Join(findings...)
}

func (b *Backend) findings(ctx context.Context) (list []error) {
	found, err := look(ctx, b.db)
	if err != nil {
		list = append(list, err)
	}
	if found == nil {
		return list // the rest would fail alike
	}
	list = append(list, found.sessionFindings()...)
	list = append(list, found.rightFindings()...)
	for _, d := range found.differences() {
		switch {
		case d.harmless:
		case len(d.fix) == 0:
			list = append(list, errors.New(d.what))
		default:
			list = append(list, errors.New(d.what+": run Migrate"))
		}
	}
	if err := b.poolerFinding(ctx); err != nil {
		list = append(list, err)
	}
	if err := ctx.Err(); err != nil && len(list) == 0 {
		list = append(list, err) // it has not been looked at everything
	}
	return list
}

func (s *shape) sessionFindings() (list []error) {
	switch {
	case s.Standby:
		list = append(list, errors.New("the server is a standby, which is read-only: connect to the primary"))
	case s.ReadOnly:
		list = append(list, errors.New("transactions are read-only: see default_transaction_read_only"))
	}
	if s.Isolation == "repeatable read" || s.Isolation == "serializable" {
		list = append(list, fmt.Errorf("default_transaction_isolation is %s, under which contended calls fail with SQLSTATE 40001: "+
			"set it to read committed for role %s or in the connection string", s.Isolation, s.Role))
	}
	if s.Encoding != "UTF8" {
		list = append(list, fmt.Errorf("client_encoding is %s, under which IDs are not what they are to a program that uses UTF8: "+
			"set client_encoding=UTF8 in the connection string", s.Encoding))
	}
	return list
}

func (s *shape) rightFindings() (list []error) {
	lacks := func(rights, on string) {
		list = append(list, fmt.Errorf("role %s lacks rights: GRANT %s ON %s TO %[1]s", s.Role, rights, on))
	}
	if s.Table != nil && len(s.Table.Lacking) > 0 {
		lacks(strings.Join(s.Table.Lacking, ", "), s.Table.Name)
	}
	if s.Sequence != nil && !s.Sequence.Usable {
		lacks("USAGE", "SEQUENCE "+s.Sequence.Name)
	}
	return list
}
