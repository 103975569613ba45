package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"
)

// forgetful is how long a statement is sent unprepared after the server has forgotten it soon after it
// was prepared: something makes it forget all the time.
var forgetful = time.Minute

// statements are the queries that are prepared. database/sql prepares each again on every connection
// that it is first used on.
//
// None is ever closed. (*sql.Stmt).Close asks the server, on each connection that knows the statement,
// while it holds the lock of the pool: a single connection gone silent would stop all others. What is
// left behind is a few kilobytes for each time that a server forgot.
type statements struct {
	mu     sync.Mutex
	byName map[string]*prepared
}

// prepared is what is known of one query. A nil stmt means that it is sent unprepared.
type prepared struct {
	stmt       *sql.Stmt
	text       string
	generation int
	at         time.Time // when it was prepared; before that, from when on it may be
	underWay   bool
}

// get returns the statement of q, or nil and the text to send instead.
func (s *statements) get(ctx context.Context, db *sql.DB, q query) (*sql.Stmt, string, error) {
	s.mu.Lock()
	p := s.of(q)
	if p.stmt != nil || p.underWay || time.Now().Before(p.at) {
		defer s.mu.Unlock()
		return p.stmt, p.text, nil // nobody waits for a statement that somebody else prepares
	}
	p.underWay = true
	text := p.text
	s.mu.Unlock()

	stmt, err := db.PrepareContext(ctx, text)

	s.mu.Lock()
	defer s.mu.Unlock()
	p.underWay = false
	if err == nil && p.text == text {
		p.stmt, p.at = stmt, time.Now()
	}
	return stmt, text, err
}

func (s *statements) of(q query) *prepared {
	p := s.byName[q.name]
	if p == nil {
		p = &prepared{text: q.text}
		if s.byName == nil {
			s.byName = make(map[string]*prepared)
		}
		s.byName[q.name] = p
	}
	return p
}

// renew forgets a statement that the server does not know any more, and returns a text for the same
// query that no driver has seen: some keep a memory of their own of what they have prepared.
func (s *statements) renew(q query, forgotten string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of(q)
	if p.text != forgotten {
		return p.text // somebody else was first
	}
	now := time.Now()
	if p.stmt == nil || now.Sub(p.at) < forgetful {
		p.at = now.Add(forgetful)
	}
	p.stmt = nil
	p.generation++
	p.text = fmt.Sprintf("%s -- %d", q.text, p.generation)
	return p.text
}

// row runs q with its name and args, and scans the columns behind the name of the one row that it
// returns. found is false if it returns none.
func (b *Backend) row(ctx context.Context, q query, args []any, dest ...any) (found bool, err error) {
	return known(b.ask(ctx, q, args, dest...))
}

// known is for those to whom a refusal that may be of their own making says nothing.
func known(found, again bool, err error) (bool, error) {
	if err == nil && !found && again {
		return false, errUnanswered
	}
	return found, err
}

// errUnanswered is for a refusal that may be of a call's own making. database/sql sends a statement once
// more when the driver calls the connection bad, and lib/pq does so also when one ends instead of an answer.
// By then the statement may have run, and the second run finds what the first has left.
var errUnanswered = errors.New("the connection ended before the answer came: the call may have taken effect")

// ask is row for those who can tell what a refusal means. again says that the statement has been sent
// before, and may have run.
func (b *Backend) ask(ctx context.Context, q query, args []any, dest ...any) (found, again bool, err error) {
	var (
		name string
		sent int
	)
	dest = append([]any{&name}, dest...)
	err = b.scan(ctx, q, args, dest, &sent)
	if _, inTx := txFrom(ctx); !inTx && staleConnection(err) {
		go b.dropIdle()
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, sent > 1, nil
	case err != nil:
		return false, sent > 1, err
	case name != q.name:
		return false, sent > 1, errMixedUp
	}
	return true, sent > 1, nil
}

// only is row for a query that always returns one.
func (b *Backend) only(ctx context.Context, q query, args []any, dest ...any) error {
	return certain(b.row(ctx, q, args, dest...))
}

// certain is for those whose query always returns a row.
func certain(found bool, err error) error {
	if err == nil && !found {
		return errMixedUp
	}
	return err
}

// scan counts in sent how often the statement goes out, but for what the server has refused unread.
func (b *Backend) scan(ctx context.Context, q query, args, dest []any, sent *int) error {
	args = append([]any{valuer(func() (driver.Value, error) {
		*sent++
		return q.name, nil
	})}, args...)
	if tx, ok := txFrom(ctx); ok {
		if tx == nil {
			return errNilTx
		}
		return tx.QueryRowContext(ctx, q.text, args...).Scan(dest...)
	}
	if b.prepared == nil {
		return b.db.QueryRowContext(ctx, q.text, args...).Scan(dest...)
	}
	stmt, text, err := b.prepared.get(ctx, b.db, q)
	switch {
	case err != nil:
	case stmt != nil:
		err = stmt.QueryRowContext(ctx, args...).Scan(dest...)
	default:
		err = b.db.QueryRowContext(ctx, text, args...).Scan(dest...)
	}
	if !unknownStatement(err) {
		return err
	}
	// The server was replaced, or told to forget. Nothing has run, so this is still the one attempt.
	*sent = max(0, *sent-1)
	return b.db.QueryRowContext(ctx, b.prepared.renew(q, text), args...).Scan(dest...)
}

// unknownStatement reports whether the server refused a prepared statement as such.
func unknownStatement(err error) bool {
	switch sqlState(err) {
	case "26000", "42P05", "0A000": // unknown, known already, or its result has changed shape
		return true
	}
	return false
}
