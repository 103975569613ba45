package history

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Instant is a reading of the machine's monotonic clock, which all of its processes share, in
// nanoseconds. It goes on while a process is stopped.
type Instant int64

// Now reads the clock.
func Now() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("no monotonic clock: %v", err)) // nothing can be said without it
	}
	return Instant(ts.Nano())
}

// Add returns the instant that is d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns how much later i is than earlier.
func (i Instant) Sub(earlier Instant) time.Duration { return time.Duration(i - earlier) }

// InstantOf returns the instant that t, which must have a monotonic reading, stands for, or one that is
// earlier by as long as the process was kept from running between two looks at the clock.
func InstantOf(t time.Time) Instant {
	now := Now()
	return now.Add(time.Until(t))
}
