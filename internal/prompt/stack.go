package prompt

// growStack gives a new goroutine a stack for a driver's call at once. It would start with a small one,
// and double it several times on the way down, each time moving all frames that are there by then.
//
//go:noinline
func growStack() {
	var room [8 << 10]byte
	keep(&room)
}

// keep makes the compiler believe that the room is needed.
//
//go:noinline
func keep(*[8 << 10]byte) {}
