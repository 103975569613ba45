package postgres

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// statements are the queries that are prepared. database/sql prepares each again on every connection
// that it is first used on.
type statements struct {
	mu     sync.Mutex
	byName map[string]*sql.Stmt
}

func (s *statements) prepare(ctx context.Context, db *sql.DB, q query) (*sql.Stmt, error) {
	s.mu.Lock()
	stmt := s.byName[q.name]
	s.mu.Unlock()
	if stmt != nil {
		return stmt, nil
	}
	stmt, err := db.PrepareContext(ctx, q.text)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.byName[q.name]; first != nil {
		go stmt.Close() // somebody else was first; closing may need the network
		return first, nil
	}
	if s.byName == nil {
		s.byName = make(map[string]*sql.Stmt)
	}
	s.byName[q.name] = stmt
	return stmt, nil
}

// drop forgets a statement that the server does not know any more.
func (s *statements) drop(q query, stmt *sql.Stmt) {
	s.mu.Lock()
	known := s.byName[q.name] == stmt
	if known {
		delete(s.byName, q.name)
	}
	s.mu.Unlock()
	if known {
		_ = stmt.Close() // it is of no more use, whether or not the server takes note
	}
}

// row runs q with its name and args, and scans the columns behind the name of the one row that it
// returns. found is false if it returns none.
func (b *Backend) row(ctx context.Context, q query, args []any, dest ...any) (found bool, err error) {
	var name string
	args = append([]any{q.name}, args...)
	dest = append([]any{&name}, dest...)
	err = b.scan(ctx, q, args, dest)
	if staleConnection(err) {
		go b.dropIdle()
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	case name != q.name:
		return false, errMixedUp
	}
	return true, nil
}

// only is row for a query that always returns one.
func (b *Backend) only(ctx context.Context, q query, args []any, dest ...any) error {
	found, err := b.row(ctx, q, args, dest...)
	if err == nil && !found {
		return errMixedUp
	}
	return err
}

func (b *Backend) scan(ctx context.Context, q query, args, dest []any) error {
	if tx, ok := txFrom(ctx); ok {
		if tx == nil {
			return errNilTx
		}
		return tx.QueryRowContext(ctx, q.text, args...).Scan(dest...)
	}
	if b.prepared == nil {
		return b.db.QueryRowContext(ctx, q.text, args...).Scan(dest...)
	}
	stmt, err := b.prepared.prepare(ctx, b.db, q)
	if err == nil {
		err = stmt.QueryRowContext(ctx, args...).Scan(dest...)
	}
	if !unknownStatement(err) {
		return err
	}
	// The server was replaced, or told to forget. Nothing has run, so this is still the one attempt.
	if stmt != nil {
		b.prepared.drop(q, stmt)
	}
	return b.db.QueryRowContext(ctx, q.text, args...).Scan(dest...)
}

// unknownStatement reports whether the server refused a prepared statement as such.
func unknownStatement(err error) bool {
	switch sqlState(err) {
	case "26000", "42P05", "0A000": // unknown, known already, or its result has changed shape
		return true
	}
	return false
}
