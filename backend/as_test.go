package backend_test

import (
	"testing"

	"github.com/aetomala/worklease/backend"
)

type namer interface{ name() string }

// A plain store lacks the capability, and shows nothing of the store that it embeds.
type plain struct{ backend.Backend }

// A named store has it.
type named struct {
	backend.Backend
	text string
}

func (n named) name() string { return n.text }

// A wrapping store lacks it, and tells what it wraps.
type wrapping struct{ backend.Backend }

func (w wrapping) Unwrap() backend.Backend { return w.Backend }

// A namedWrapping store has it and tells what it wraps.
type namedWrapping struct{ named }

func (w namedWrapping) Unwrap() backend.Backend { return w.Backend }

func TestAs(t *testing.T) {
	inner := named{text: "inner"}
	for _, c := range []struct {
		what string
		b    backend.Backend
		want string // empty: not found
	}{
		{"nil", nil, ""},
		{"a store that has it", inner, "inner"},
		{"a store that lacks it", plain{}, ""},
		{"a wrapper", wrapping{inner}, "inner"},
		{"a wrapper of a wrapper", wrapping{wrapping{inner}}, "inner"},
		{"a wrapper that has it itself", namedWrapping{named{inner, "outer"}}, "outer"},
		{"a wrapper of one that has it itself", wrapping{namedWrapping{named{inner, "outer"}}}, "outer"},
		{"a wrapper of a store that lacks it", wrapping{plain{}}, ""},
		{"a wrapper of nil", wrapping{}, ""},
		{"a store that hides one that has it", plain{inner}, ""},
		{"a wrapper of one that hides it", wrapping{plain{inner}}, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			found, ok := backend.As[namer](c.b)
			if ok != (c.want != "") {
				t.Fatalf("ok is %t", ok)
			}
			if !ok {
				if found != nil {
					t.Errorf("found %v without ok", found)
				}
				return
			}
			if got := found.name(); got != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

func TestAsConcreteType(t *testing.T) {
	if found, ok := backend.As[named](wrapping{named{text: "inner"}}); !ok || found.text != "inner" {
		t.Errorf("As[named] = %v, %t", found, ok)
	}
	if found, ok := backend.As[named](wrapping{plain{}}); ok || found.text != "" {
		t.Errorf("As[named] = %v, %t", found, ok)
	}
}
