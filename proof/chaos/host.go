package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
)

// host is what the servers and proxies of package pgtest need of a test, for a program that is none. A
// failure ends the program; everything that was started notices and ends too.
type host struct {
	testing.TB // nil: what is not overridden is not used
	cleanups   []func()
}

func (h *host) Helper()                  {}
func (h *host) Name() string             { return "chaos" }
func (h *host) Context() context.Context { return context.Background() }
func (h *host) Cleanup(f func())         { h.cleanups = append(h.cleanups, f) }
func (h *host) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
func (h *host) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(exitFailed)
}
func (h *host) Fatalf(format string, args ...any) { h.Fatal(fmt.Sprintf(format, args...)) }
func (h *host) Error(args ...any)                 { h.Fatal(args...) }
func (h *host) Errorf(format string, args ...any) { h.Fatalf(format, args...) }

// close runs the cleanups, the last one first.
func (h *host) close() {
	for _, f := range slices.Backward(h.cleanups) {
		f()
	}
}
