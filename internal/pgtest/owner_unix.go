//go:build unix

package pgtest

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// unprivileged is the user that servers run as when the tests run as root, which initdb, postgres
// and pgbouncer refuse. It is nil otherwise.
var unprivileged = findUnprivileged()

func findUnprivileged() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return &syscall.Credential{Uid: 65534, Gid: 65534}
}

// tempDir returns the usual folder for temporary files, unless the unprivileged user can't come there.
func tempDir() string {
	dir := os.TempDir()
	if unprivileged == nil {
		return dir
	}
	for path := dir; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return "/tmp"
		}
		if path == filepath.Dir(path) {
			return dir
		}
	}
}

func chownUnprivileged(path string) error {
	if unprivileged == nil {
		return nil
	}
	return os.Chown(path, int(unprivileged.Uid), int(unprivileged.Gid))
}

// detached puts a command into a session of its own: an interrupt from the terminal must reach the
// tests only, since what supervises servers has to survive them.
func detached(asUnprivileged bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if asUnprivileged {
		attr.Credential = unprivileged
	}
	return attr
}
