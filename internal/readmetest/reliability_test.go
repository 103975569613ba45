package readmetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// namedTest is how docs/reliability.md names a test: the folder of its package, and its function.
var namedTest = regexp.MustCompile("`([a-z/.]+)` *`(Test[A-Za-z]+)`")

// Each test that the page names is there, and each fault has a verdict, and a test or else a reason.
func TestReliability(t *testing.T) {
	page := strings.ReplaceAll(read(t, "docs/reliability.md"), "\n", " ")
	named := namedTest.FindAllStringSubmatch(page, -1)
	if got := strings.Count(page, "`Test"); got != len(named) {
		t.Errorf("%d tests are named, but only %d with their package", got, len(named))
	}
	for _, match := range named {
		if !hasTest(t, match[1], match[2]) {
			t.Errorf("there is no %s in %s", match[2], match[1])
		}
	}

	_, faults, found := strings.Cut(read(t, "docs/reliability.md"), "\n## Faults\n")
	if !found {
		t.Fatal("there is no chapter on faults")
	}
	keys := make(map[string]bool)
	for line := range strings.Lines(faults) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| ") || cells[0] == "| key" {
			continue
		}
		if len(cells) != 4 {
			t.Errorf("%q has %d cells, want 4", line, len(cells))
			continue
		}
		key, tests, verdict := strings.TrimPrefix(cells[0], "| "), cells[2], cells[3]
		if keys[key] {
			t.Errorf("%s is there twice", key)
		}
		keys[key] = true
		kind := regexp.MustCompile(`^(kept|by design|cannot happen|out of scope)\b`).FindString(verdict)
		if kind == "" {
			t.Errorf("%s: %q is no verdict", key, verdict)
		}
		if !namedTest.MatchString(tests) && (tests != "–" || kind == "kept" || kind == "by design" || !strings.Contains(verdict, ": ")) {
			t.Errorf("%s: %q needs a test", key, verdict)
		}
	}
	if len(keys) == 0 {
		t.Error("there are no faults")
	}
}

func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(top, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
