package model

import (
	"fmt"
	"strings"
	"time"

	"github.com/aetomala/worklease/backend"
)

// Kind says what an [Op] does.
type Kind uint8

// The operations of a store, and the one thing that happens to it.
const (
	Advance Kind = iota // the clock moves
	Acquire
	Checkpoint
	Renew
	Release
	ReadCheckpoint
	Forget
	Sweep
)

var kindNames = [...]string{"Advance", "Acquire", "Checkpoint", "Renew", "Release", "ReadCheckpoint", "Forget", "Sweep"}

// String returns the name of the operation.
func (k Kind) String() string { return kindNames[k] }

// Op is one step of a sequence. A kind looks only at the fields that it needs.
type Op struct {
	Kind     Kind
	WorkID   string
	HolderID string
	// Token is the rank of an acquisition. Zero and what was not given out yet match nothing; in a real
	// store too.
	Token          uint64
	TTL            time.Duration
	State          []byte
	Mode           backend.ExitMode
	Retention      time.Duration
	IncludeExpired bool
	By             time.Duration // Advance; may be negative
	Done           bool          // the context is done before the call
}

// Record returns the record that the operation presents.
func (op Op) Record() backend.LeaseRecord {
	return backend.LeaseRecord{WorkID: op.WorkID, HolderID: op.HolderID, FencingToken: op.Token}
}

// GoString returns op as it would be written in a test, without the fields that are zero.
func (op Op) GoString() string {
	var b strings.Builder
	fmt.Fprintf(&b, "{Kind: model.%v", op.Kind)
	field := func(set bool, format string, value any) {
		if set {
			fmt.Fprintf(&b, ", "+format, value)
		}
	}
	field(op.WorkID != "", "WorkID: %q", op.WorkID)
	field(op.HolderID != "", "HolderID: %q", op.HolderID)
	field(op.Token != 0, "Token: %d", op.Token)
	field(op.TTL != 0, "TTL: %d", int64(op.TTL))
	field(op.State != nil, "State: []byte(%q)", op.State)
	field(op.Mode != 0, "Mode: %d", uint8(op.Mode))
	field(op.Retention != 0, "Retention: %d", int64(op.Retention))
	field(op.IncludeExpired, "IncludeExpired: %t", op.IncludeExpired)
	field(op.By != 0, "By: %d", int64(op.By))
	field(op.Done, "Done: %t", op.Done)
	b.WriteByte('}')
	return b.String()
}
