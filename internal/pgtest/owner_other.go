//go:build !unix

package pgtest

import "syscall"

// Without a POSIX shell there are no clusters of our own here, only a server that is there already or
// one in Docker. These let the package compile.
var unprivileged *struct{}

func chownUnprivileged(string) error { return nil }

func detached() *syscall.SysProcAttr { return nil }
