package bench

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease/internal/pgtest"
)

var (
	processes   = flag.Int("processes", 20, "TestFleet: processes")
	leases      = flag.Int("leases", 500, "TestFleet: leases of each")
	fleetTTL    = flag.Duration("ttl", 30*time.Second, "TestFleet: their TTL")
	connections = flag.Int("connections", 4, "TestFleet: connections of each process")
	hold        = flag.Duration("hold", 2*time.Minute, "TestFleet: for how long the leases are held, once all are there")
	ramp        = flag.Duration("ramp", 10*time.Minute, "TestFleet: how long it may take to acquire them")
	look        = flag.Duration("look", 30*time.Second, "TestFleet: time between two rows")
)

// TestFleet has processes hold leases on one small server, and prints what that costs. It is not one of the
// tables, as it takes minutes:
//
//	go test -run '^TestFleet$' -timeout 0 -args -tables -processes 1 -leases 10000 -hold 5m
func TestFleet(t *testing.T) {
	n, each := pick(*processes, 2), pick(*leases, 20)
	var s *pgtest.Server
	if *tables {
		s = pgtest.New(t, "shared_buffers = 128MB", "max_connections = "+strconv.Itoa(20+n**connections)).Server
	} else {
		s = pgtest.Start(t)
	}
	c, f := newClock(t, s), newFixture(t, s, "pgx", 1)
	tab := table{
		title: fmt.Sprintf("%d processes with %d leases each", n, each),
		about: fmt.Sprintf("TTL %v, %d connections each, fsync on, all other settings as PostgreSQL has them. Each row is of about %v, the first "+
			"ones while the leases are acquired. A renewal is late if it is done later than half a TTL after the one before was begun. "+
			"Processor time as a share of one core, that of the processes together; statements are the transactions of the whole server. "+
			"Goroutines and heap are those of the process that has most; heap is what was alive at its last collection.",
			*fleetTTL, *connections, *look),
		head: []string{"after", "held", "lost", "renewals a second", "attempts failed", "latest, of the TTL", "statements a second", "WAL a second", "processes", "server",
			"goroutines", "heap"},
	}
	all := make([]*process, n)
	for i := range all {
		all[i] = startProcess(t, duty{DSN: f.dsn, Name: fmt.Sprintf("p%02d", i), Leases: each, TTL: *fleetTTL, Connections: *connections})
	}
	if *tables {
		fmt.Print(setting(t, s))
	}
	m := fleetMeter{t: t, c: c, f: f, all: all, began: time.Now()}
	m.start()
	row := func(wait time.Duration) (w word) {
		time.Sleep(wait)
		w, cells := m.row()
		tab.add(cells...)
		if *tables {
			fmt.Fprintln(os.Stderr, cells, w.Trouble) // while one waits
		}
		return w
	}
	for w := row(0); w.Held+w.Lost < n*each && time.Since(m.began) < *ramp; {
		w = row(pick(*look, time.Millisecond))
	}
	for rows := pick(max(1, int(*hold / *look)), 1); rows > 0; rows-- {
		row(pick(*look, 0))
	}
	tab.print(t)
}

// process is one of the fleet.
type process struct {
	pid string
	in  io.Writer
	out *bufio.Scanner
}

func startProcess(t *testing.T, d duty) *process {
	t.Helper()
	task, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), memberVariable+"="+string(task))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // upon which it ends
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &process{pid: strconv.Itoa(cmd.Process.Pid), in: in, out: bufio.NewScanner(out)}
}

// ask returns what the processes say, together.
func ask(t *testing.T, all []*process) (sum word) {
	t.Helper()
	words, errs := make([]word, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			if _, errs[i] = io.WriteString(p.in, "\n"); errs[i] != nil {
				return
			}
			if !p.out.Scan() {
				errs[i] = fmt.Errorf("process %s has ended", p.pid)
				return
			}
			errs[i] = json.Unmarshal(p.out.Bytes(), &words[i])
		})
	}
	wg.Wait()
	for i, w := range words {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		sum.Held += w.Held
		sum.Lost += w.Lost
		sum.Made += w.Made
		sum.Failed += w.Failed
		sum.Late = max(sum.Late, w.Late)
		sum.Goroutines = max(sum.Goroutines, w.Goroutines)
		sum.Heap = max(sum.Heap, w.Heap)
		if w.Trouble != "" {
			sum.Trouble = w.Trouble
		}
	}
	return sum
}

// fleetMeter reads what has grown since the row before.
type fleetMeter struct {
	t   *testing.T
	c   *clock
	f   *fixture
	all []*process

	began           time.Time
	at              time.Time
	statements, wal int64
	client, server  time.Duration
}

func (m *fleetMeter) start() { *m = m.now() }

func (m *fleetMeter) now() fleetMeter {
	n := *m
	n.at, n.server, n.client = time.Now(), m.c.server(), 0
	for _, p := range m.all {
		n.client += onProcessor(p.pid)
	}
	n.statements = scan[int64](m.t, m.f.db, "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")
	n.wal = walPosition(m.t, m.f.db)
	return n
}

func (m *fleetMeter) row() (w word, cells []string) {
	w, n := ask(m.t, m.all), m.now()
	seconds := n.at.Sub(m.at).Seconds()
	rate := func(amount int64) string { return fmt.Sprintf("%.0f", float64(amount)/seconds) }
	share := func(d time.Duration) string { return fmt.Sprintf("%.0f %%", 100*d.Seconds()/seconds) }
	cells = []string{
		n.at.Sub(n.began).Round(time.Second).String(), strconv.Itoa(w.Held), strconv.Itoa(w.Lost), rate(int64(w.Made)), strconv.Itoa(w.Failed),
		fmt.Sprintf("%.1f %%", 100*float64(w.Late)/float64(*fleetTTL)),
		rate(n.statements - m.statements), rate((n.wal-m.wal)/1024) + " KiB", share(n.client - m.client), share(n.server - m.server),
		strconv.Itoa(w.Goroutines), fmt.Sprintf("%.0f MiB", float64(w.Heap)/(1<<20)),
	}
	*m = n
	return w, cells
}
