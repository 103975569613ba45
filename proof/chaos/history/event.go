// Package history holds what the processes of a run have told, on one clock, and checks that it can have
// happened under the promises of the leases.
//
// The check is only as strong as what is known. A call that was answered has happened between its two
// events; a call that failed, or whose process was killed in it, may have happened or not, and both are
// then right. A violation is reported where no reading of the events is.
package history

import "fmt"

// Event is one line of the log. It is written before a call for what is about to happen and after it for
// what has, so that an instant is never later than the beginning of its call, nor earlier than its end.
type Event struct {
	At     Instant `json:"at"`
	Kind   Kind    `json:"kind"`
	Holder string  `json:"holder"` // names one life of one process
	Work   string  `json:"work,omitempty"`
	Token  uint64  `json:"token,omitempty"`
	// State is the checkpoint that is saved or was read; its text is different for each attempt.
	State string `json:"state,omitempty"`
	// Exit is declared, for a release, or that of the predecessor, for a read.
	Exit string `json:"exit,omitempty"`
	// Previous is the predecessor's holder ID, for a read.
	Previous string `json:"previous,omitempty"`
	// Until is how long the holder holds itself safe, for a claim.
	Until Instant `json:"until,omitempty"`
	// Text says why something failed. It is for the reader.
	Text string `json:"text,omitempty"`
}

// Kind says what an Event tells.
type Kind string

// The kinds of events.
const (
	Acquiring    Kind = "acquiring"     // before an attempt; with no event after it, it found the lease held within a TTL
	Acquired     Kind = "acquired"      // a tenure has begun
	AcquireLost  Kind = "acquire-lost"  // the attempt failed, and may have taken the lease
	Read         Kind = "read"          // what the predecessor left
	Claim        Kind = "claim"         // LeaseWindow was ok at that instant
	Saving       Kind = "saving"        // before a checkpoint
	Saved        Kind = "saved"         // it was acknowledged, or the transaction that it was part of
	SaveRefused  Kind = "save-refused"  // it has not happened and cannot any more
	SaveLost     Kind = "save-lost"     // it may have happened
	Releasing    Kind = "releasing"     // before a release
	Released     Kind = "released"      // it was acknowledged
	ReleaseLost  Kind = "release-lost"  // it may have happened
	NotReleased  Kind = "not-released"  // it was refused
	Finished     Kind = "finished"      // the work is done for good, as the last tenure sees it
	WorkReturned Kind = "work-returned" // a tenure has ended; Text is its error
)

// Effect is a row of the table in which the work leaves its traces.
type Effect struct {
	Work   string
	Step   int
	Token  uint64
	Holder string
}

// Row is a lease as the store has it when all is over.
type Row struct {
	Work, Holder, State, Exit string
	Token                     uint64
}

// Fault is something that was done to the processes, the server or what lies between them.
type Fault struct {
	Kind       string
	Worker     int // -1: it was done to all of them
	Start, End Instant
}

// HolderID names one life of a worker.
func HolderID(worker, life int) string { return fmt.Sprintf("worker-%d.%d", worker, life) }

// WorkerOf returns the worker of a holder ID, -1 if it is none.
func WorkerOf(holder string) int {
	var worker, life int
	if _, err := fmt.Sscanf(holder, "worker-%d.%d", &worker, &life); err != nil {
		return -1
	}
	return worker
}
