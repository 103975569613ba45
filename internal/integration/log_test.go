package integration_test

import (
	"slices"
	"strings"
	"sync"
)

// log is what happened, in order.
type log struct {
	mu     sync.Mutex
	events []string
}

func (l *log) add(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event)
}

func (l *log) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// String has a space after each event.
func (l *log) String() string {
	var b strings.Builder
	for _, event := range l.list() {
		b.WriteString(event + " ")
	}
	return b.String()
}
