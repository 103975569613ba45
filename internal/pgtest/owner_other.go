//go:build !unix

package pgtest

import (
	"os"
	"syscall"
)

// Without a POSIX shell there are no clusters of our own here, only a server that is there already or
// one in Docker. These let the package compile.
func chownUnprivileged(string) error { return nil }

func tempDir() string { return os.TempDir() }

func detached(bool) *syscall.SysProcAttr { return nil }
