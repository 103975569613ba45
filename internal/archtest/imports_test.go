package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A rule says what the files of a package other than its tests may import besides the standard
// library. Paths are relative to the module; "." is its root package, and "dir/..." is dir and what
// lies beneath it.
type rule struct {
	module  []string
	foreign []string // import paths of other modules, with what lies beneath them
}

// rules is the order of the layers: imports point up the list. A package has the longest entry that
// fits it.
var rules = map[string]rule{
	"backend":             {},
	"backend/memory":      {module: []string{"backend"}},
	"backend/postgres":    {module: []string{"backend", "internal/pause", "internal/prompt", "internal/wake"}},
	"backend/conformance": {module: []string{"backend"}, foreign: []string{"github.com/onsi/ginkgo/v2", "github.com/onsi/gomega"}},
	"checkpoint":          {},

	"internal/pgtest":    {foreign: []string{"github.com/jackc/pgx/v5", "github.com/lib/pq"}}, // for tests only
	"internal/redistest": {},                                                                  // for tests only
	"internal/listentest": { // for tests only
		module:  []string{".", "backend", "backend/conformance", "backend/postgres", "internal/..."},
		foreign: []string{"github.com/onsi/ginkgo/v2", "github.com/onsi/gomega"},
	},
	"internal/model": {module: []string{"backend"}}, // for tests only

	"internal/tenuretest": {module: []string{".", "backend", "backend/memory", "internal/..."}}, // for tests only
	"internal/prompt":     {module: []string{"backend"}},                                        // below the stores, which have it in common

	"internal/wake": {module: []string{"internal/pause"}}, // below the stores too

	// Below the root, since it needs them as the packages above it do.
	"internal/ident": {},
	"internal/pause": {},

	".": {module: []string{"backend", "internal/ident", "internal/pause"}},

	"internal/...": {module: []string{".", "backend", "internal/..."}},

	"worker": {module: []string{".", "internal/..."}},
	"leader": {module: []string{".", "internal/..."}},
	"pool":   {module: []string{".", "internal/..."}},

	"schedule":              {module: []string{".", "backend", "internal/..."}},
	"schedule/scheduletest": {module: []string{"schedule", "backend/memory"}},

	"examples/...": {module: []string{"..."}},
}

func TestImports(t *testing.T) {
	top, files := moduleFiles(t)
	checked := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		if _, ok := ruleFor(path.Dir(file)); !ok {
			t.Errorf("%s: %s", file, unknown(path.Dir(file)))
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(top, file), nil, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			continue
		}
		checked++
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if problem := checkImport(path.Dir(file), imported); problem != "" {
				t.Errorf("%s: %s", file, problem)
			}
		}
	}
	if checked == 0 {
		t.Error("found no Go file to check")
	}
}

// The rules are worth no more than the code that applies them.
func TestImportRules(t *testing.T) {
	for _, row := range []struct {
		pkg, imported string
		allowed       bool
	}{
		{".", "context", true},
		{".", modulePath + "/backend", true},
		{".", modulePath + "/backend/memory", false},
		{".", modulePath + "/internal/tenure", false},
		{".", "github.com/lib/pq", false},
		{"backend", "net/http", true},
		{"backend", modulePath, false},
		{"backend/memory", modulePath + "/backend", true},
		{"backend/memory", modulePath + "/backend/postgres", false},
		{"backend/postgres", modulePath, false},
		{"backend/postgres", "github.com/lib/pq", false},
		{"backend/conformance", "github.com/onsi/gomega", true},
		{"backend/conformance", "github.com/onsi/gomega/gstruct", true},
		{"backend/conformance", "github.com/onsi/gomegaphone", false},
		{"backend/conformance", modulePath + "/backend/memory", false},
		{"backend/unheardof", modulePath + "/backend", false},
		{"checkpoint", modulePath, false},
		{"checkpoint", modulePath + "/backend", false},
		{"internal/tenure", modulePath, true},
		{"internal/tenure", modulePath + "/internal/other", true},
		{"internal/tenure", modulePath + "/worker", false},
		{"internal/tenure", modulePath + "/backend/memory", false},
		{"worker", modulePath, true},
		{"worker", modulePath + "/internal/tenure", true},
		{"worker", modulePath + "/backend/memory", false},
		{"worker", modulePath + "/leader", false},
		{"leader", modulePath + "/pool", false},
		{"pool", modulePath + "/worker", false},
		{"schedule", modulePath + "/backend", true},
		{"schedule", modulePath + "/backend/memory", false},
		{"schedule", modulePath + "/leader", false},
		{"examples/first", modulePath + "/backend/memory", true},
		{"examples/first", "github.com/lib/pq", false},
		{"unheardof", "fmt", false},
		{"worker", modulePath + "extra/backend", false},
	} {
		if problem := checkImport(row.pkg, row.imported); (problem == "") != row.allowed {
			t.Errorf("%s imports %s: allowed = %t, want %t (%s)", row.pkg, row.imported, problem == "", row.allowed, problem)
		}
	}
}

// checkImport says what is wrong with an import in the package with that relative path, or "".
func checkImport(pkg, imported string) string {
	r, ok := ruleFor(pkg)
	if !ok {
		return unknown(pkg)
	}
	if imported == modulePath || strings.HasPrefix(imported, modulePath+"/") {
		rel := strings.TrimPrefix(strings.TrimPrefix(imported, modulePath), "/")
		if rel == "" {
			rel = "."
		}
		if !slices.ContainsFunc(r.module, func(pattern string) bool { return fits(rel, pattern) }) {
			return fmt.Sprintf("%s must not import %s; of this module it may import %v", pkg, imported, r.module)
		}
		return ""
	}
	first, _, _ := strings.Cut(imported, "/")
	if !strings.Contains(first, ".") { // the standard library has no dot there, and no module may do without
		return ""
	}
	if !slices.ContainsFunc(r.foreign, func(prefix string) bool { return fits(imported, prefix+"/...") }) {
		return fmt.Sprintf("%s must not import %s: the root module needs the standard library only", pkg, imported)
	}
	return ""
}

func ruleFor(pkg string) (best rule, ok bool) {
	length := -1
	for pattern, r := range rules {
		if fits(pkg, pattern) && len(pattern) > length {
			best, ok, length = r, true, len(pattern)
		}
	}
	return best, ok
}

func fits(pkg, pattern string) bool {
	if pattern == "..." {
		return true
	}
	dir, tree := strings.CutSuffix(pattern, "/...")
	return pkg == dir || tree && strings.HasPrefix(pkg, dir+"/")
}

func unknown(pkg string) string {
	return fmt.Sprintf("package %s has no rule; say in the table in internal/archtest/imports_test.go what it may import", pkg)
}
