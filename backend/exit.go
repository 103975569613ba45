package backend

import "fmt"

// ExitMode says how a holder left its work.
type ExitMode uint8

const (
	// ExitNone is the zero value: there was no holder before.
	ExitNone ExitMode = iota
	// ExitFinished is declared by a holder whose work is done for now; it may be run again.
	ExitFinished
	// ExitAbandoned is declared by a holder that gives up before its work is done.
	ExitAbandoned
	// ExitRetired is declared by a holder whose work is done for good.
	ExitRetired
	// ExitExpired is never declared: the lease lapsed before its holder said anything.
	ExitExpired
)

var exitNames = [...]string{
	ExitNone:      "none",
	ExitFinished:  "finished",
	ExitAbandoned: "abandoned",
	ExitRetired:   "retired",
	ExitExpired:   "expired",
}

// String returns the lower-case name of m, such as "finished", or "ExitMode(9)" if it has none.
func (m ExitMode) String() string {
	if int(m) < len(exitNames) {
		return exitNames[m]
	}
	return fmt.Sprintf("ExitMode(%d)", uint8(m))
}

// Declarable reports whether a holder may declare m: finished, abandoned or retired.
func (m ExitMode) Declarable() bool {
	return m == ExitFinished || m == ExitAbandoned || m == ExitRetired
}
