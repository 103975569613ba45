package backend_test

import (
	"testing"

	"github.com/aetomala/worklease/backend"
)

func TestExitMode(t *testing.T) {
	var zero backend.ExitMode
	for _, c := range []struct {
		mode       backend.ExitMode
		text       string
		declarable bool
	}{
		{zero, "none", false},
		{backend.ExitNone, "none", false},
		{backend.ExitFinished, "finished", true},
		{backend.ExitAbandoned, "abandoned", true},
		{backend.ExitRetired, "retired", true},
		{backend.ExitExpired, "expired", false},
		{backend.ExitExpired + 1, "ExitMode(5)", false},
		{9, "ExitMode(9)", false},
		{255, "ExitMode(255)", false},
	} {
		if got := c.mode.String(); got != c.text {
			t.Errorf("ExitMode(%d).String() = %q, want %q", uint8(c.mode), got, c.text)
		}
		if got := c.mode.Declarable(); got != c.declarable {
			t.Errorf("%v.Declarable() = %t, want %t", c.mode, got, c.declarable)
		}
	}
}
