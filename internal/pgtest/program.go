package pgtest

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// Program returns the path of one of PostgreSQL's client programs, such as pgbench. It need not be of
// the server's version, and not every package with a server has all of them: it is looked for beside
// the server's binaries first, and then where those of another version may be.
func Program(name string) (string, error) {
	bin, err := binDir()
	if err != nil {
		return "", err
	}
	places := []string{filepath.Join(bin, name), name}
	if bin == "" {
		places = places[1:]
	}
	for _, folder := range installFolders {
		found, err := filepath.Glob(filepath.Join(folder, name))
		if err != nil {
			return "", err
		}
		places = append(places, found...)
	}
	for _, place := range places {
		if path, err := exec.LookPath(place); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s beside the server's binaries, on the PATH or in the usual folders", name)
}
