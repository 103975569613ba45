package faulty

import (
	"sync"
	"time"
)

// Epoch is where a Clock begins.
var Epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// Clock stands still until it is moved. The zero value shows Epoch.
type Clock struct {
	mu     sync.Mutex
	passed time.Duration
}

// Now returns what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Epoch.Add(c.passed)
}

// Set moves the clock to d after Epoch.
func (c *Clock) Set(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed = d
}

// Advance moves the clock by d.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed += d
}
