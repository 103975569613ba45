package pool

import "errors"

// PermanentError is an error that ends its slot, if it is in the chain of a run's error and Permanent
// returns true: the work cannot succeed in this process, however often it is tried. Another process
// may still acquire the work ID. Of several in a chain the one that [errors.As] finds counts.
type PermanentError interface {
	error
	Permanent() bool
}

// Permanent marks err as a [PermanentError]. The text stays the same, and err is in the chain of what is
// returned. The mark of nil is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

type permanentError struct{ err error }

func (e permanentError) Error() string   { return e.err.Error() }
func (e permanentError) Unwrap() error   { return e.err }
func (e permanentError) Permanent() bool { return true }

func isPermanent(err error) bool {
	found, ok := errors.AsType[PermanentError](err)
	return ok && found.Permanent()
}
