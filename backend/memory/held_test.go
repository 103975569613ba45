package memory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
)

func TestHeldErrorTellsWhoIsAtWorkFromWhoHasLeft(t *testing.T) {
	b, ctx := memory.New(), t.Context()
	record, err := b.Acquire(ctx, "w", "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []backend.ExitMode{backend.ExitNone, backend.ExitAbandoned} {
		if want != backend.ExitNone {
			if err := b.ReleaseAfter(ctx, record, want, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		_, err := b.Acquire(ctx, "w", "b", time.Hour)
		held, ok := errors.AsType[*backend.HeldError](err)
		if !ok || held.Exit != want {
			t.Errorf("error = %v, exit %v, want %v", err, held, want)
		}
	}
}
