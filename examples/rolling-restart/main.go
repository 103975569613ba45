// Rolling-restart shows partitions that are read by two pools, one per host, while the hosts are restarted one
// after the other: no partition is read by two at once, and no record is skipped or read twice.
package main

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/checkpoint"
	"github.com/aetomala/worklease/pool"
)

// idle is how long a slot waits that found its partition held elsewhere.
const idle = 100 * time.Millisecond

var partitions = []string{"orders-0", "orders-1", "orders-2", "orders-3"}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	store := memory.New()
	topic := &topic{read: make(map[string][]int)}

	blue1, err := start(ctx, "host-1, old version", store, topic)
	if err != nil {
		return err
	}
	blue1.awaitPartitions(len(partitions))
	blue2, err := start(ctx, "host-2, old version", store, topic)
	if err != nil {
		return err
	}
	time.Sleep(2 * idle)
	blue2.awaitPartitions(0) // nothing gives work back: the first has all until it stops

	if err := blue1.stop(); err != nil {
		return err
	}
	blue2.awaitPartitions(len(partitions))
	green1, err := start(ctx, "host-1, new version", store, topic)
	if err != nil {
		return err
	}
	if err := blue2.stop(); err != nil {
		return err
	}
	green1.awaitPartitions(len(partitions))
	if err := green1.stop(); err != nil {
		return err
	}
	return topic.check()
}

// progress is what a partition's reader leaves to the next.
type progress struct {
	Next int `json:"next"` // the first record that has not been read
}

// host stands for one process with a pool.
type host struct {
	name     string
	pool     *pool.Pool
	shutdown context.CancelFunc
	done     chan error
}

func start(ctx context.Context, name string, store backend.Backend, topic *topic) (*host, error) {
	lease, err := worklease.New(store, worklease.Config{TTL: 30 * time.Second, HolderID: name})
	if err != nil {
		return nil, err
	}
	cfg := pool.Config{WorkIDs: partitions, IdleInterval: idle}
	p, err := pool.New(lease, cfg, func(ctx context.Context, partition string, _ worklease.Token, prior worklease.Checkpoint) ([]byte, error) {
		at, err := checkpoint.Decode[progress](checkpoint.JSON(), prior.State)
		if err != nil {
			return nil, pool.Permanent(err) // no other attempt will be able to read it
		}
		for ctx.Err() == nil {
			topic.next(partition, at.Next)
			at.Next++
			pause(ctx, time.Millisecond)
		}
		// The lease is kept until the state is saved. A reader that may also crash calls
		// lease.Checkpoint as it goes along.
		state, err := checkpoint.Encode(checkpoint.JSON(), at)
		if err != nil {
			return nil, err
		}
		return state, context.Cause(ctx)
	})
	if err != nil {
		return nil, err
	}
	ctx, shutdown := context.WithCancel(ctx)
	h := &host{name: name, pool: p, shutdown: shutdown, done: make(chan error, 1)}
	go func() { h.done <- p.Run(ctx) }()
	fmt.Printf("%s: starts\n", name)
	return h, nil
}

// awaitPartitions waits until the host reads n partitions.
func (h *host) awaitPartitions(n int) {
	for len(h.pool.ActiveSlots()) != n {
		time.Sleep(time.Millisecond)
	}
	fmt.Printf("%s: reads %d partitions\n", h.name, n)
}

func (h *host) stop() error {
	h.shutdown()
	err := <-h.done // its readers have saved their progress, and the leases are free
	fmt.Printf("%s: has stopped\n", h.name)
	return err
}

// topic is what the partitions belong to. It notes which records were read.
type topic struct {
	mu   sync.Mutex
	read map[string][]int
}

func (t *topic) next(partition string, record int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read[partition] = append(t.read[partition], record)
}

func (t *topic) check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, partition := range partitions {
		records := t.read[partition]
		for i, record := range records {
			if record != i {
				return fmt.Errorf("%s: record %d was read in place of %d", partition, record, i)
			}
		}
		if len(records) == 0 {
			return fmt.Errorf("%s: was not read", partition)
		}
		fmt.Printf("%s: every record was read once, in order\n", partition)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
