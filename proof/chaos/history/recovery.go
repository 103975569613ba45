package history

import (
	"slices"
	"sort"
	"time"
)

// Recovery says how long the work stood still after faults.
type Recovery struct {
	// Worst is the longest time, by kind of fault, from its end to the next acknowledged checkpoint of a
	// work ID that it may have hit, and how many of them there were.
	Worst map[string]time.Duration
	Count map[string]int
	// Disturbed counts those left out because another fault came before the work had gone on.
	Disturbed int
	// Standstill is the longest time between two acknowledged checkpoints of one work ID, whatever came
	// between them.
	Standstill time.Duration
}

// Recover measures, after each fault, each work ID whose holder it hit: all of them if it was done to the
// server, otherwise those that the worker held when it began. As faults overlap, only those recoveries
// count during which no other fault was on that could have held them up: one of the server, or of any
// worker that has ever held the work ID.
func Recover(h History, faults []Fault) Recovery {
	r := Recovery{Worst: make(map[string]time.Duration), Count: make(map[string]int)}
	works, _ := worksOf(h.Events)
	for _, w := range sorted(works) {
		saves := w.acknowledged()
		for i := 1; i < len(saves); i++ {
			r.Standstill = max(r.Standstill, saves[i].Sub(saves[i-1]))
		}
		workers := make(map[int]bool)
		for _, t := range w.tenures {
			workers[WorkerOf(t.holder)] = true
		}
		for i, f := range faults {
			if f.Worker >= 0 && w.heldBy(f.Start) != f.Worker {
				continue
			}
			next := sort.Search(len(saves), func(i int) bool { return saves[i] >= f.End })
			if next == len(saves) {
				continue // the work was done
			}
			disturbed := slices.ContainsFunc(faults, func(other Fault) bool {
				return other != faults[i] && (other.Worker < 0 || workers[other.Worker]) &&
					other.Start < saves[next] && other.End >= f.End
			})
			if disturbed {
				r.Disturbed++
				continue
			}
			r.Count[f.Kind]++
			r.Worst[f.Kind] = max(r.Worst[f.Kind], saves[next].Sub(f.End))
		}
	}
	return r
}

func (w *work) acknowledged() []Instant {
	var at []Instant
	for _, t := range w.tenures {
		for _, s := range t.saves {
			if s.outcome == Saved {
				at = append(at, s.ended)
			}
		}
	}
	slices.Sort(at)
	return at
}

// heldBy returns the worker whose tenure was the last to have begun at that time, -1 if there was none.
func (w *work) heldBy(at Instant) int {
	for _, t := range slices.Backward(w.tenures) {
		if t.begun[1] <= at {
			return WorkerOf(t.holder)
		}
	}
	return -1
}
