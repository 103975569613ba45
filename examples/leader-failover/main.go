// Leader-failover shows two hosts that stand for election for as long as they run: one leads and shuts
// down in order, the other takes over, is cut off from the store and loses the lead, and stands again when
// it is back.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/leader"
)

const (
	workID = "scheduler"
	ttl    = 2 * time.Second // a real one is rather 15 s
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	store := memory.New()
	host1, err := start(ctx, "host-1", store)
	if err != nil {
		return err
	}
	host1.tell("elected")
	host2, err := start(ctx, "host-2", store)
	if err != nil {
		return err
	}
	fmt.Println("host-2: stands by")

	fmt.Println("host-1: is told to shut down")
	if err := host1.stop(); err != nil {
		return err
	}
	host2.tell("elected")

	if host1, err = start(ctx, "host-1", store); err != nil {
		return err
	}
	fmt.Println("host-1: is back, and stands by")
	fmt.Println("host-2: is cut off from the store")
	host2.network.cut.Store(true)
	host2.tell("lost") // at the end of its lease window, before host-1 can be elected
	host1.tell("elected")
	host2.network.cut.Store(false)

	// Nobody started host-2 again, it has been standing all the time.
	fmt.Println("host-1: is told to shut down")
	if err := host1.stop(); err != nil {
		return err
	}
	host2.tell("elected")
	return host2.stop()
}

// host stands for one process.
type host struct {
	name     string
	network  *network
	events   chan string
	shutdown context.CancelFunc
	done     chan error
}

func start(ctx context.Context, name string, store backend.Backend) (*host, error) {
	ctx, shutdown := context.WithCancel(ctx)
	h := &host{
		name: name, network: &network{Backend: store}, shutdown: shutdown,
		events: make(chan string, 100), done: make(chan error, 1),
	}
	lease, err := worklease.New(h.network, worklease.Config{TTL: ttl, HolderID: name})
	if err != nil {
		return nil, err
	}
	cfg := leader.Config{
		IdleInterval: 50 * time.Millisecond, BackoffInterval: 50 * time.Millisecond,
		OnElected: func(context.Context, worklease.Token) { h.events <- "elected" },
		OnLost:    func(context.Context, worklease.Token) { h.events <- "lost" },
	}
	go func() { h.done <- leader.Run(ctx, lease, workID, cfg, lead) }()
	return h, nil
}

// lead does what only one host may do. It stops when its context ends, for whatever reason.
func lead(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// tell waits for the next event of the host, which is to be want, and prints it.
func (h *host) tell(want string) {
	select {
	case event := <-h.events:
		if event != want {
			log.Fatalf("%s: %s, and not %s", h.name, event, want)
		}
		fmt.Printf("%s: %s\n", h.name, event)
	case err := <-h.done:
		log.Fatalf("%s has stopped: %v", h.name, err)
	}
}

func (h *host) stop() error {
	h.shutdown()
	if err := <-h.done; !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", h.name, err)
	}
	fmt.Printf("%s: has stopped\n", h.name)
	return nil
}

// network is a host's way to the store.
type network struct {
	backend.Backend
	cut atomic.Bool
}

var errUnreachable = errors.New("no route to host")

func (n *network) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	if n.cut.Load() {
		return backend.LeaseRecord{}, errUnreachable
	}
	return n.Backend.Acquire(ctx, workID, holderID, ttl)
}

func (n *network) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	if n.cut.Load() {
		return errUnreachable
	}
	return n.Backend.Renew(ctx, record, ttl)
}
