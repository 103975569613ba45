package backend_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
)

// counting wraps a store and counts the acquisitions that succeed. What it does not say itself goes to
// the store within.
type counting struct {
	backend.Backend
	acquired int
}

func (c *counting) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	record, err := c.Backend.Acquire(ctx, workID, holderID, ttl)
	if err == nil {
		c.acquired++
	}
	return record, err
}

// Unwrap lets capabilities of the store within be found.
func (c *counting) Unwrap() backend.Backend { return c.Backend }

// A wrapper embeds a store and overrides what it cares for.
func Example() {
	ctx := context.Background()
	store := &counting{Backend: memory.New()}

	for _, holderID := range []string{"host-1", "host-2"} {
		record, err := store.Acquire(ctx, "invoices", holderID, time.Minute)
		var held *backend.HeldError
		switch {
		case err == nil:
			fmt.Println(record.HolderID, "has it")
		case errors.As(err, &held):
			fmt.Println(holderID, "is refused:", held.HolderID, "has it")
		default:
			fmt.Println(err)
		}
	}
	fmt.Println("acquired:", store.acquired)
	// Output:
	// host-1 has it
	// host-2 is refused: host-1 has it
	// acquired: 1
}

// resettable is a capability that a program has for some of its stores.
type resettable interface{ Reset() }

type resetting struct{ backend.Backend }

func (resetting) Reset() { fmt.Println("reset") }

// A capability is found through any number of wrappers, and its absence is no error.
func ExampleAs() {
	for _, store := range []backend.Backend{
		&counting{Backend: resetting{memory.New()}},
		&counting{Backend: memory.New()},
	} {
		if found, ok := backend.As[resettable](store); ok {
			found.Reset()
		} else {
			fmt.Println("cannot be reset")
		}
	}
	// Output:
	// reset
	// cannot be reset
}
