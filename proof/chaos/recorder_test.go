package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
)

// heldStore is a store in which somebody holds everything.
type heldStore struct{ backend.Backend }

func (heldStore) Acquire(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
	return backend.LeaseRecord{}, backend.ErrLeaseHeld
}

// Within a TTL, an attempt that was refused cannot have held the lease before.
func TestAttemptThatWasRefusedAfterATTLIsInDoubt(t *testing.T) {
	for _, c := range []struct {
		ttl  time.Duration
		want string
	}{
		{time.Hour, "acquiring"},
		{0, "acquiring acquire-lost"},
	} {
		events, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer events.Close()
		f := newFleet(nil, 1)
		b := recorded{Backend: heldStore{}, log: &recorder{holder: "worker-0.1", out: theirs}}
		if _, err := b.Acquire(t.Context(), "w", "worker-0.1", c.ttl); !errors.Is(err, backend.ErrLeaseHeld) {
			t.Errorf("Acquire = %v, want what the store says", err)
		}
		if err := theirs.Close(); err != nil {
			t.Fatal(err)
		}
		f.listen(events)
		var kinds []string
		for _, e := range f.events {
			kinds = append(kinds, string(e.Kind))
		}
		if found := strings.Join(kinds, " "); found != c.want {
			t.Errorf("with a TTL of %v the events are %q, want %q", c.ttl, found, c.want)
		}
	}
}
