package bench

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease/internal/pgtest"
)

// clock reads how long the processes that take part have had a processor, which no other process on
// the machine can stretch. It knows how to on Linux; elsewhere all durations are zero.
type clock struct {
	postmaster string   // its process ID
	others     []string // those of servers that have no children
}

func newClock(t *testing.T, s *pgtest.Server) *clock {
	t.Helper()
	if !*tables {
		return &clock{} // the server may be on another machine
	}
	return &clock{postmaster: scan[string](t, s.Admin(t), `SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)`)}
}

// with returns a clock that reads the time of a Redis server too.
func (c *clock) with(r *redisServer) *clock {
	if !*tables {
		return c
	}
	return &clock{postmaster: c.postmaster, others: append(slices.Clone(c.others), r.pid)}
}

// self is the time of this process.
func (c *clock) self() time.Duration { return onProcessor("self") }

// server is the time of all processes of the servers, those that have ended included.
func (c *clock) server() (total time.Duration) {
	for _, pid := range c.others {
		total += onProcessor(pid)
	}
	return total + c.postgres()
}

func (c *clock) postgres() time.Duration {
	if c.postmaster == "" {
		return 0
	}
	content, _ := os.ReadFile("/proc/" + c.postmaster + "/stat")
	_, behind, _ := strings.Cut(string(content), ") ") // of the program's name
	fields := strings.Fields(behind)
	if len(fields) < 15 {
		return 0
	}
	const tick = time.Second / 100
	total := time.Duration(atoi(fields[13])+atoi(fields[14])) * tick // of the children that have ended
	for _, child := range c.children() {
		total += onProcessor(child)
	}
	return total
}

func (c *clock) children() []string {
	content, _ := os.ReadFile("/proc/" + c.postmaster + "/task/" + c.postmaster + "/children")
	return strings.Fields(string(content))
}

// settle waits until there are no more processes of the server than so many: those whose clients have
// left may take a moment to notice.
func (c *clock) settle(processes int) {
	for deadline := time.Now().Add(5 * time.Second); len(c.children()) > processes && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

func onProcessor(pid string) (total time.Duration) {
	threads, _ := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
	for _, thread := range threads {
		content, _ := os.ReadFile(thread)
		nanoseconds, _, _ := strings.Cut(string(content), " ")
		total += time.Duration(atoi(nanoseconds))
	}
	return total
}

func atoi(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
