package pool

import (
	"container/heap"
	"time"
)

// agenda has the slots that wait for a time, the earliest first. The zero value is empty.
type agenda struct{ slots byDue }

// first returns the slot that is due first, or nil.
func (a *agenda) first() *slot {
	if len(a.slots) == 0 {
		return nil
	}
	return a.slots[0]
}

// put makes s due at the given time, whether it is there already or not.
func (a *agenda) put(s *slot, due time.Time) {
	s.due = due
	if s.place == 0 {
		heap.Push(&a.slots, s)
	} else {
		heap.Fix(&a.slots, s.place-1)
	}
}

// remove takes s off, if it is there.
func (a *agenda) remove(s *slot) {
	if s.place > 0 {
		heap.Remove(&a.slots, s.place-1)
	}
}

// byDue is a heap whose elements know where they are.
type byDue []*slot

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h byDue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

func (h *byDue) Push(x any) {
	s := x.(*slot)
	*h = append(*h, s)
	s.place = len(*h)
}

func (h *byDue) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	s.place = 0
	return s
}
