package bench

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aetomala/worklease/internal/pgtest"
)

var (
	tables = flag.Bool("tables", false, "measure in earnest and print tables")
	scale  = flag.Float64("scale", 1, "multiplies how long and how often is measured")
)

// TestTables makes all tables, each in a subtest: -run 'TestTables/wal' makes one.
func TestTables(t *testing.T) {
	durable, quick := server(t, "on"), server(t, "off")
	if *tables {
		fmt.Print(setting(t, quick))
	}
	t.Run("floor", func(t *testing.T) { tableFloor(t, quick, durable) })
	t.Run("pglock", func(t *testing.T) { tablePglock(t, quick, durable) })
	t.Run("heartbeat", func(t *testing.T) { tableHeartbeat(t, quick, durable) })
	t.Run("river", func(t *testing.T) { tableRiver(t, quick, durable) })
	t.Run("redislock", tableRedislock)
	t.Run("redisfloor", tableRedisFloor)
	t.Run("schedule", func(t *testing.T) { tableSchedule(t, quick, durable) })
	t.Run("wrapping", func(t *testing.T) { tableWrapping(t, quick) })
	t.Run("contended", func(t *testing.T) { tableContended(t, durable) })
	t.Run("wal", func(t *testing.T) { tableWAL(t, quick) })
	t.Run("batch", func(t *testing.T) { tableBatch(t, quick, durable) })
	t.Run("hot", func(t *testing.T) { tableHOT(t, quick) })
	t.Run("many", func(t *testing.T) { tableMany(t, quick) })
	t.Run("pool", func(t *testing.T) { tablePool(t, quick) })
	t.Run("costs", func(t *testing.T) { tableCosts(t, quick) })
	t.Run("handoff", func(t *testing.T) { tableHandoff(t, quick, durable) })
	t.Run("roundtrips", func(t *testing.T) { tableRoundTrips(t, quick) })
}

// server starts a server on which nothing happens by itself while something is measured.
func server(t *testing.T, fsync string) *pgtest.Server {
	t.Helper()
	if !*tables {
		return pgtest.Start(t)
	}
	return pgtest.New(t,
		"fsync = "+fsync,
		"shared_buffers = 128MB",
		"max_wal_size = 8GB", // no checkpoint, and so no images of whole pages in the log
		"checkpoint_timeout = 1h",
		"autovacuum = off",
	).Server
}

// pick tells apart what is done in earnest and what is enough to see that the code works.
func pick[T any](earnest, trial T) T {
	if *tables {
		return earnest
	}
	return trial
}

// length is how long, and times how often, to measure.
func length(d time.Duration) time.Duration {
	return pick(time.Duration(float64(d)**scale), time.Millisecond)
}

func times(n int) int {
	return pick(max(1, int(float64(n)**scale)), 10)
}

// table is a table in Markdown, with a sentence or two on what it shows.
type table struct {
	title, about string
	head         []string
	rows         [][]string
}

func (tab *table) add(cells ...string) { tab.rows = append(tab.rows, cells) }

// print shows the table if it was wanted. With -v it is in the log in any case.
func (tab *table) print(t *testing.T) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n", tab.title)
	if tab.about != "" {
		fmt.Fprintf(&b, "%s\n\n", tab.about)
	}
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(tab.head)
	b.WriteString(strings.Repeat("|---", len(tab.head)) + "|\n")
	for _, row := range tab.rows {
		line(row)
	}
	if *tables {
		fmt.Print(b.String())
		return
	}
	t.Log(b.String())
}

// setting says what the numbers are from.
func setting(t *testing.T, s *pgtest.Server) string {
	processor := runtime.GOARCH
	if cpuinfo, err := os.Open("/proc/cpuinfo"); err == nil {
		defer cpuinfo.Close()
		for lines := bufio.NewScanner(cpuinfo); lines.Scan(); {
			if key, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(key) == "model name" {
				processor = strings.TrimSpace(value)
				break
			}
		}
	}
	version := scan[string](t, s.Admin(t), "SELECT split_part(version(), ' on ', 1)")
	return fmt.Sprintf("%s; %s; %s/%s, %d of %s; clients and server on one machine\n\n"+
		"Throughput, and in brackets operations per second of processor time, clients and server together.\n",
		time.Now().Format(time.DateOnly), version, runtime.Version(), runtime.GOOS, runtime.NumCPU(), processor)
}
