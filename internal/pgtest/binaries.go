package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// installFolders are the places where packages put PostgreSQL, mostly outside the PATH.
var installFolders = []string{
	"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                   // Red Hat and its kin
	"/usr/local/pgsql/bin",               // built from source
	"/opt/homebrew/opt/postgresql@*/bin", // Homebrew on Apple silicon
	"/usr/local/opt/postgresql@*/bin",    // Homebrew on Intel
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// binDir returns the folder that initdb and postgres are in, or "" if there is none. It is an error
// if WORKLEASE_TEST_POSTGRES_BIN is set and they are not there: who names a version wants no other.
func binDir() (string, error) {
	if dir := os.Getenv("WORKLEASE_TEST_POSTGRES_BIN"); dir != "" {
		if !hasServer(dir) {
			return "", fmt.Errorf("no initdb and postgres in WORKLEASE_TEST_POSTGRES_BIN=%s", dir)
		}
		return filepath.Abs(dir)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil && hasServer(filepath.Dir(path)) {
			return filepath.Dir(path), nil
		}
	}
	for _, pattern := range installFolders {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		slices.SortFunc(found, func(a, b string) int { return versionIn(b) - versionIn(a) })
		for _, dir := range found {
			if hasServer(dir) {
				return dir, nil
			}
		}
	}
	return "", nil
}

func hasServer(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// versionIn returns the last number in a path, 0 if it has none.
func versionIn(path string) int {
	numbers := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(numbers) == 0 {
		return 0
	}
	n, err := strconv.Atoi(numbers[len(numbers)-1])
	if err != nil {
		return 0
	}
	return n
}
