package backend_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
)

func TestHeldError(t *testing.T) {
	expiry := time.Date(2026, time.January, 2, 16, 4, 5, 6000, time.FixedZone("", 3600))
	held := &backend.HeldError{WorkID: "w\n", HolderID: "h", ExpiresAt: expiry}
	wrapped := fmt.Errorf("acquire: %w", held)

	for _, sentinel := range []error{
		backend.ErrFenced, backend.ErrLeaseHeld, backend.ErrLeaseExpired, backend.ErrInvalidExitMode,
	} {
		if got, want := errors.Is(wrapped, sentinel), sentinel == backend.ErrLeaseHeld; got != want {
			t.Errorf("errors.Is(err, %v) = %t, want %t", sentinel, got, want)
		}
	}
	if found, ok := errors.AsType[*backend.HeldError](wrapped); !ok || found != held {
		t.Errorf("errors.AsType = %v, %t", found, ok)
	}
	for _, part := range []string{`"w\n"`, `"h"`, "2026-01-02T15:04:05.000006Z"} {
		if !strings.Contains(held.Error(), part) {
			t.Errorf("the text %s does not contain %s", held, part)
		}
	}
}

func TestSentinelsAreApart(t *testing.T) {
	sentinels := []error{
		backend.ErrFenced, backend.ErrLeaseHeld, backend.ErrLeaseExpired, backend.ErrInvalidExitMode,
	}
	for i, err := range sentinels {
		for j, target := range sentinels {
			if got, want := errors.Is(err, target), i == j; got != want {
				t.Errorf("errors.Is(%v, %v) = %t, want %t", err, target, got, want)
			}
		}
	}
}
