// Package readmetest holds the README to its word: what it shows is compiled, run, and compared with
// what it says is printed. The Go code of other pages is compiled.
package readmetest

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// top is the root of the module, where the commands of the README are run.
const top = "../.."

// preamble is what the shorter pieces of code may take as given.
const preamble = `package snippet

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/checkpoint"
	"github.com/aetomala/worklease/leader"
	"github.com/aetomala/worklease/pool"
	"github.com/aetomala/worklease/schedule"
	"github.com/aetomala/worklease/worker"
)

var (
	ctx     context.Context
	store   backend.Backend
	db      *sql.DB
	lease   worklease.Lease
	workIDs []string
	work    pool.WorkFn
	lead    func(context.Context) error

	_ = errors.New
	_ = log.Println
	_ = signal.NotifyContext
	_ = http.HandleFunc
	_ = leader.Run
	_ syscall.Signal
	_ time.Duration
	_ worker.WorkFn
	_ checkpoint.Codec
	_ schedule.Task
)
`

var program = regexp.MustCompile(`(?m)^package main$`)

// block is a fenced block of a page.
type block struct {
	page     string
	line     int
	language string
	text     string
}

// blocksOf returns the blocks of a page.
func blocksOf(t *testing.T, page string) []block {
	t.Helper()
	var blocks []block
	open := false
	for i, line := range strings.SplitAfter(read(t, page), "\n") {
		switch fence, found := strings.CutPrefix(line, "```"); {
		case found && open:
			open = false
		case found:
			open = true
			blocks = append(blocks, block{page: page, line: i + 1, language: strings.TrimSpace(fence)})
		case open:
			blocks[len(blocks)-1].text += line
		}
	}
	if open {
		t.Fatalf("%s:%d: the block has no end", page, blocks[len(blocks)-1].line)
	}
	return blocks
}

// Every block is of a kind that is tested; a new kind needs a test first.
func TestBlocks(t *testing.T) {
	quickstart := 0
	blocks := blocksOf(t, "README.md")
	printed := func(i int) string {
		if i+1 == len(blocks) || blocks[i+1].language != "text" {
			t.Errorf("README.md:%d: no text block with the output follows", blocks[i].line)
			return ""
		}
		return blocks[i+1].text
	}
	for i, b := range blocks {
		switch {
		case b.language == "go" && program.MatchString(b.text):
			if b.text == read(t, "examples/quickstart/main.go") {
				quickstart++
			}
			compare(t, b.line, goRun(t, write(t, b.text)), printed(i))
		case b.language == "go":
			compile(t, b)
		case b.language == "sh":
			command := strings.TrimSuffix(b.text, "\n")
			if path, found := strings.CutPrefix(command, "go run "); found {
				compare(t, b.line, goRun(t, path), printed(i))
			} else if target, found := strings.CutPrefix(command, "make "); found {
				makeTarget(t, b.line, target)
				packages(t, b.line, printed(i))
			} else {
				t.Errorf("README.md:%d: %q is not a command that this test knows", b.line, command)
			}
		case b.language == "text" && i > 0 && (blocks[i-1].language == "sh" || blocks[i-1].language == "go"):
		default:
			t.Errorf("README.md:%d: a block of %q is not tested", b.line, b.language)
		}
	}
	if quickstart != 1 {
		t.Errorf("%d blocks are identical with examples/quickstart/main.go, want 1", quickstart)
	}
}

// The Go code of the other pages is checked as far as its types go.
func TestCodeOfOtherPages(t *testing.T) {
	for _, page := range []string{"docs/from-shedlock.md", "docs/postgres.md", "docs/production.md"} {
		compiled := 0
		for _, b := range blocksOf(t, page) {
			if b.language == "go" {
				compile(t, b)
				compiled++
			}
		}
		if compiled == 0 {
			t.Errorf("%s: no code found", page)
		}
	}
}

func compare(t *testing.T, line int, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("README.md:%d: prints\n%s\nthe README says\n%s", line, got, want)
	}
}

// compile checks the types of a piece of code: a file that says what it imports, declarations, or the
// body of a function that returns an error.
func compile(t *testing.T, b block) {
	t.Helper()
	source := preamble + b.text
	if strings.HasPrefix(b.text, "import ") {
		source = "package snippet\n\n" + b.text
	} else if _, err := parser.ParseFile(token.NewFileSet(), "", source, 0); err != nil {
		source = preamble + "func _() error {\n" + b.text + "\nreturn nil\n}\n"
	}
	if out, err := command(t, "go", "build", write(t, source)).CombinedOutput(); err != nil {
		t.Errorf("%s:%d: %v\n%s", b.page, b.line, err, out)
	}
}

// packages checks the output shown of a test run: each package named is there and has tests.
func packages(t *testing.T, line int, output string) {
	t.Helper()
	for shown := range strings.Lines(output) {
		fields := strings.Fields(shown)
		if len(fields) < 2 || fields[0] != "ok" {
			continue
		}
		out, err := command(t, "go", "list", "-f", "{{len .TestGoFiles}} {{len .XTestGoFiles}}", fields[1]).CombinedOutput()
		if err != nil || string(out) == "0 0\n" {
			t.Errorf("README.md:%d: %s has no tests: %s", line, fields[1], out)
		}
	}
}

func makeTarget(t *testing.T, line int, target string) {
	t.Helper()
	if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).MatchString(read(t, "Makefile")) {
		t.Errorf("README.md:%d: the Makefile has no target %q", line, target)
	}
}

// A link within the repository leads to something, and its anchor to a heading.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)
	pages := []string{
		"README.md", "UPGRADING.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md",
		"docs/architecture.md", "docs/comparison.md", "docs/performance.md", "docs/postgres.md", "docs/production.md", "docs/reliability.md", "docs/adr/README.md", "proof/model/README.md",
	}
	records, err := filepath.Glob(filepath.Join(top, "docs/adr/0*.md"))
	if err != nil || len(records) == 0 {
		t.Errorf("found %d decisions: %v", len(records), err)
	}
	for _, record := range records {
		pages = append(pages, "docs/adr/"+filepath.Base(record))
	}
	for _, page := range pages {
		found := link.FindAllStringSubmatch(code.ReplaceAllString(read(t, page), ""), -1)
		if len(found) == 0 && !strings.HasPrefix(page, "docs/adr/0") {
			t.Errorf("%s: no link found", page)
		}
		for _, match := range found {
			path, anchor := match[1], strings.TrimPrefix(match[2], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(filepath.Join(top, target)); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if anchor != "" && !slices.Contains(anchorsOf(t, target), anchor) {
				t.Errorf("%s: %s has no heading for #%s", page, target, anchor)
			}
		}
	}
}

var code = regexp.MustCompile("(?s)```.*?```")

// anchorsOf returns the anchors of a page's headings, in the way of those who render them.
func anchorsOf(t *testing.T, page string) (anchors []string) {
	t.Helper()
	heading := regexp.MustCompile(`(?m)^#+ +(.*)$`)
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, match := range heading.FindAllStringSubmatch(code.ReplaceAllString(read(t, page), ""), -1) {
		text := dropped.ReplaceAllString(strings.ToLower(match[1]), "")
		anchors = append(anchors, strings.ReplaceAll(text, " ", "-"))
	}
	return anchors
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(top, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(data), "\r\n", "\n")
}

// write puts source into a file outside the module. A go command that is run within the module builds
// it as a package that may import what a user may.
func write(t *testing.T, source string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func goRun(t *testing.T, program string) string {
	t.Helper()
	cmd := command(t, "go", "run", program)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Errorf("go run %s: %v\n%s", program, err, &stderr)
	}
	return string(out)
}

func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = top
	return cmd
}
