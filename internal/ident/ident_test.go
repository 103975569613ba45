package ident_test

import (
	"strings"
	"testing"

	"github.com/aetomala/worklease/internal/ident"
)

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name, id string
		ok       bool
	}{
		{"a word", "report", true},
		{"spaces", "  ", true},
		{"any script", "отчёт/日本語", true},
		{"control characters", "a\nb\x01", true},
		{"as long as can be", strings.Repeat("x", 1024), true},
		{"a byte longer", strings.Repeat("x", 1025), false},
		{"too long in bytes, not in letters", strings.Repeat("é", 513), false},
		{"empty", "", false},
		{"NUL", "a\x00b", false},
		{"not UTF-8", "a\xffb", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := ident.Check(tc.id); (err == nil) != tc.ok {
				t.Errorf("Check(%q) = %v", tc.id, err)
			}
		})
	}
}
