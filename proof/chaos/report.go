package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// partitions are the kinds that count as such in the summary.
var partitions = []string{"freeze", "delay", "drop", "refuse", "freeze-all", "delay-all", "drop-all", "refuse-all"}

// report prints what a run has come to.
func (o *outcome) report(out io.Writer) error {
	c, f := o.config, o.checked.Figures
	count := make(map[string]int)
	for _, fault := range o.faults {
		count[fault.Kind]++
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "fault\tsurvived\trecoveries\tworst, in TTLs\twhat\n")
	for _, kind := range faults {
		if count[kind.kind] == 0 {
			continue
		}
		worst := "-"
		if o.recovery.Count[kind.kind] > 0 {
			worst = o.inTTLs(o.recovery.Worst[kind.kind])
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", kind.kind, count[kind.kind], o.recovery.Count[kind.kind], worst, kind.what)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	sum := func(kinds ...string) (n int) {
		for _, kind := range kinds {
			n += count[kind]
		}
		return n
	}
	worst := time.Duration(0)
	for _, d := range o.recovery.Worst {
		worst = max(worst, d)
	}
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nseed\t%d\n", c.Seed)
	fmt.Fprintf(w, "time, TTL\t%v, %v\n", o.took.Round(time.Second), c.TTL)
	fmt.Fprintf(w, "workers, their processes, work IDs\t%d, %d, %d\n", c.Workers, o.lives, c.Works)
	fmt.Fprintf(w, "kills, pauses, partitions, server restarts\t%d, %d, %d, %d\n",
		sum("kill"), sum("pause"), sum(partitions...), sum("stop-fast", "stop-immediate"))
	fmt.Fprintf(w, "faults in all\t%d\n", len(o.faults))
	fmt.Fprintf(w, "tenures, handoffs to another process\t%d, %d\n", f.Tenures, f.Handoffs)
	for _, exit := range slices.Sorted(maps.Keys(f.Exits)) {
		fmt.Fprintf(w, "  that read %s\t%d\n", exit, f.Exits[exit])
	}
	fmt.Fprintf(w, "  of one who never heard that it had the lease\t%d\n", f.Unheard)
	fmt.Fprintf(w, "steps, effects\t%d, %d\n", f.Steps, f.Effects)
	fmt.Fprintf(w, "checkpoints acknowledged\t%d\n", f.Saves)
	fmt.Fprintf(w, "calls that failed with nobody knowing their outcome\t%d\n", f.Doubtful)
	fmt.Fprintf(w, "looks at the lease window that found it open\t%d\n", f.Claims)
	fmt.Fprintf(w, "worst time to recover after a fault, in TTLs\t%s (%d disturbed ones left out)\n", o.inTTLs(worst), o.recovery.Disturbed)
	fmt.Fprintf(w, "longest that a work ID stood still, in TTLs\t%s\n", o.inTTLs(o.recovery.Standstill))
	fmt.Fprintf(w, "all finished after the last fault, in TTLs\t%s (may take %s)\n", o.inTTLs(f.LastToEnd), o.inTTLs(c.Bound))
	fmt.Fprintf(w, "violations\t%d\n", len(o.violations()))
	if err := w.Flush(); err != nil {
		return err
	}
	violations := o.violations()
	for _, v := range violations[:min(len(violations), 30)] {
		fmt.Fprintln(out, "VIOLATION:", v)
	}
	if more := len(violations) - 30; more > 0 {
		fmt.Fprintf(out, "and %d more\n", more)
	}
	return nil
}

// violations are all the promises that were broken, and all the processes that broke down.
func (o *outcome) violations() []string {
	all := slices.Clone(o.problems)
	for _, v := range o.checked.Violations {
		all = append(all, v.String())
	}
	return all
}

// writeLog writes what a violation can be understood from.
func (o *outcome) writeLog(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	enc := json.NewEncoder(out)
	for _, e := range o.history.Events {
		err = errors.Join(err, enc.Encode(e))
	}
	for _, f := range o.faults {
		err = errors.Join(err, enc.Encode(f))
	}
	return errors.Join(err, out.Flush(), file.Close())
}

func (o *outcome) inTTLs(d time.Duration) string {
	return fmt.Sprintf("%.2f", float64(d)/float64(o.config.TTL))
}
