package proof

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// asked returns what an environment variable asks for, or zero if it is not set.
func asked(tb testing.TB, variable string) int {
	tb.Helper()
	value := os.Getenv(variable)
	if value == "" {
		return 0
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		tb.Fatalf("%s is %q, which is no number above zero", variable, value)
	}
	return n
}

// figures prints what has been checked, if somebody asked for more than the short form. They are read by
// who runs the long one, and so are not those of a test's log.
func figures(what, store, format string, args ...any) {
	if os.Getenv("WORKLEASE_PROOF_STEPS") == "" && os.Getenv("WORKLEASE_PROOF_HISTORIES") == "" {
		return
	}
	fmt.Printf("\nproof: %s: %s: %s\n", what, store, fmt.Sprintf(format, args...))
}

func since(begun time.Time) time.Duration { return time.Since(begun).Round(100 * time.Millisecond) }
