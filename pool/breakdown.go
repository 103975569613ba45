package pool

import (
	"fmt"
	"runtime"
)

// breakdown is a panic in a slot, or a Goexit if value is nil. It is the value that Run panics with, since
// the stack of Run says nothing of where that was.
type breakdown struct {
	workID string
	value  any
	stack  []byte
}

func (b *breakdown) Error() string {
	return fmt.Sprintf("pool: panic in the slot of %q: %v\n\n%s", b.workID, b.value, b.stack)
}

func (b *breakdown) Unwrap() error {
	err, _ := b.value.(error)
	return err
}

// goOn makes the panic, or the Goexit, the caller's.
func (b *breakdown) goOn() {
	if b.value == nil {
		runtime.Goexit()
	}
	panic(b)
}
