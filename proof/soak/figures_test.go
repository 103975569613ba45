package soak

import (
	"database/sql"
	"fmt"
	"io"
	"runtime"
	"testing"
	"text/tabwriter"
	"time"
)

// sizes are what grows if something leaks.
type sizes struct {
	goroutines   int
	heap, stacks uint64
	table, index int64
	dead         int64
}

func measure(t *testing.T, admin *sql.DB) sizes {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s := sizes{goroutines: runtime.NumGoroutine(), heap: m.HeapAlloc, stacks: m.StackInuse}
	err := admin.QueryRowContext(t.Context(), `
		SELECT pg_relation_size(relid), pg_indexes_size(relid), n_dead_tup
		FROM pg_stat_user_tables WHERE relname = 'worklease_leases'`).Scan(&s.table, &s.index, &s.dead)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// updates returns how many rows have been updated, and how many of those by an update that leaves the index
// alone, as soon as the server has heard of at least so many.
func updates(t *testing.T, admin *sql.DB, atLeast int) (all, hot int64) {
	t.Helper()
	await(t, "the server to have counted the updates", func() bool {
		err := admin.QueryRowContext(t.Context(), `
			SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'worklease_leases'`).Scan(&all, &hot)
		if err != nil {
			t.Fatal(err)
		}
		return all >= int64(atLeast)
	})
	return all, hot
}

// await looks now and then whether what nobody announces has come about.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// result is what one of the runs has come to.
type result struct {
	name         string
	took         time.Duration
	leases, lost int
	counts
	ttl           time.Duration
	before, after int // goroutines, without any lease
	start, end    sizes
	connections   int
	waits         int64         // for a connection
	waited        time.Duration // together
	updates, hot  int64
	taken         int64 // connections, by the work
}

// print writes the results as a table, and a line of each that a script can find.
func print(out io.Writer, results []result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(what string, cell func(r result) string) {
		fmt.Fprint(w, what)
		for _, r := range results {
			fmt.Fprint(w, "\t", cell(r))
		}
		fmt.Fprintln(w)
	}
	fromTo := func(unit string, f func(s sizes) float64) func(r result) string {
		return func(r result) string {
			return fmt.Sprintf("%.*f to %.*f%s", digits(unit), f(r.start), digits(unit), f(r.end), unit)
		}
	}
	row("", func(r result) string { return r.name })
	row("time", func(r result) string { return r.took.Round(time.Second).String() })
	row("leases, TTL", func(r result) string { return fmt.Sprintf("%d, %v", r.leases, r.ttl) })
	row("leases lost", func(r result) string { return fmt.Sprint(r.lost) })
	row("renewals", func(r result) string { return fmt.Sprint(r.made) })
	row("attempts that failed", func(r result) string { return fmt.Sprint(r.failed) })
	row("renewals that took more than one", func(r result) string { return fmt.Sprint(r.again) })
	row("latest renewal, of the TTL", func(r result) string { return r.lateness() })
	row("goroutines", fromTo("", func(s sizes) float64 { return float64(s.goroutines) }))
	row("  before and after the leases", func(r result) string { return fmt.Sprintf("%d and %d", r.before, r.after) })
	row("heap", fromTo(" MiB", func(s sizes) float64 { return float64(s.heap) / (1 << 20) }))
	row("stacks", fromTo(" MiB", func(s sizes) float64 { return float64(s.stacks) / (1 << 20) }))
	row("connections of the leases", func(r result) string { return fmt.Sprint(r.connections) })
	row("waits for one, for how long", func(r result) string {
		return fmt.Sprintf("%d, %v each", r.waits, (r.waited / time.Duration(max(r.waits, 1))).Round(10*time.Microsecond))
	})
	row("table", fromTo(" KiB", func(s sizes) float64 { return float64(s.table) / 1024 }))
	row("index", fromTo(" KiB", func(s sizes) float64 { return float64(s.index) / 1024 }))
	row("dead rows", fromTo("", func(s sizes) float64 { return float64(s.dead) }))
	row("HOT updates", func(r result) string { return fmt.Sprintf("%.2f %%", 100*float64(r.hot)/float64(max(r.updates, 1))) })
	row("connections taken by the work", func(r result) string { return fmt.Sprint(r.taken) })
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		fmt.Fprintf(out, "proof: soak: %s: %d leases for %v, %d lost, %d renewals, %d attempts failed, latest by %s of the TTL\n",
			r.name, r.leases, r.took.Round(time.Second), r.lost, r.made, r.failed, r.lateness())
	}
	return nil
}

func digits(unit string) int {
	if unit == " MiB" {
		return 1
	}
	return 0
}

// lateness is by how much a renewal has been too late; half of the TTL is as late as it can be.
func (r result) lateness() string {
	return fmt.Sprintf("%.1f %%", 100*float64(r.late)/float64(r.ttl))
}
