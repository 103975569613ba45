package backend

import "context"

// Transactional is the capability of a store that can make a call inside a transaction of the caller's,
// which the context carries. Without it, no call of the store is inside a transaction.
type Transactional interface {
	// InTransaction reports whether a call under ctx takes effect only once the caller commits. The
	// lease window does not move with such a call, and background renewal is not begun under such a
	// context.
	InTransaction(ctx context.Context) bool
}
