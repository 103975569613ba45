package pgtest

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Proxy stands between clients and a server, and is the network in its bad moods. What is set applies
// to all connections, those to come too, from the next bytes on; bytes that the proxy is just handing
// over may still arrive. Its methods are safe for concurrent use. It ends with the test.
//
// It reads the protocol, so it can't do with encrypted connections; its DSN says sslmode=disable.
type Proxy struct {
	tb     testing.TB
	dsn    string
	target string
	addr   string

	ctx    context.Context // ends with the proxy
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu         sync.Mutex
	listener   net.Listener // nil while it refuses connections
	links      map[*link]struct{}
	thawed     chan struct{} // closed unless frozen
	delay      [2]time.Duration
	drop       bool
	closeAfter bool
	traffic    Traffic
}

// Traffic is what has passed a proxy.
type Traffic struct {
	// Connections counts those the proxy has accepted.
	Connections int

	// RoundTrips counts how often a client waited for the server: the changes from bytes that went to
	// the server to bytes that came back, on each connection. Messages sent together and the pieces of
	// a long reply are one round trip; what the server sends unasked is none; logging in takes some.
	// Clients that send the next request before they have the reply to the last are counted too low.
	RoundTrips int

	// Messages holds the types of the messages that clients have sent, at most the first 4,096, a byte
	// each: Parse is P, Bind B, Describe D, Execute E, Sync S, Query Q, Close C, Terminate X.
	Messages string

	counts [256]int
}

// Count returns how many messages of a type clients have sent.
func (t Traffic) Count(kind byte) int { return t.counts[kind] }

// NewProxy starts a proxy in front of the server that dsn leads to.
func NewProxy(tb testing.TB, dsn string) *Proxy {
	tb.Helper()
	target, err := hostport(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{
		tb:     tb,
		target: target,
		addr:   net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		links:  make(map[*link]struct{}),
		thawed: make(chan struct{}),
	}
	close(p.thawed)
	p.dsn = WithParams(withHost(dsn, p.addr), "sslmode=disable")
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.Accept()
	tb.Cleanup(p.close)
	return p
}

// DSN returns the DSN that the proxy was made with, by way of the proxy.
func (p *Proxy) DSN() string { return p.dsn }

// Freeze holds all bytes back, both ways, and the news that a side has closed. Connections stay open,
// and new ones are accepted but get no answer: a network that has gone silent.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
		p.thawed = make(chan struct{})
	default:
	}
}

// Thaw lets everything go that was held back since Freeze.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
	default:
		close(p.thawed)
	}
}

// Delay hands bytes over only when they are as old as that. They stay in order, and the delays of
// successive ones do not add up.
func (p *Proxy) Delay(toServer, toClient time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = [2]time.Duration{up: toServer, down: toClient}
}

// DropReplies swallows the reply to the next statement that is executed on each connection, and all
// that follows it. The server has then executed the statement, and committed if nobody opened
// a transaction; the client doesn't know. Replies to statements that are only prepared do pass, and so
// do those to a ping, otherwise some drivers would not come to the execution. With thenClose the
// connection is closed when the reply is complete; otherwise the client waits.
func (p *Proxy) DropReplies(thenClose bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop, p.closeAfter = true, thenClose
}

// PassReplies ends DropReplies for those connections that have lost nothing yet.
func (p *Proxy) PassReplies() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = false
}

// Refuse makes new connections fail with "connection refused". Those there are stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return
	}
	if err := p.listener.Close(); err != nil {
		p.tb.Errorf("proxy: %v", err)
	}
	p.listener = nil
}

// Accept ends Refuse.
func (p *Proxy) Accept() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.ctx.Err() != nil {
		return
	}
	listener, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.tb.Errorf("proxy: %v", err)
		return
	}
	p.listener = listener
	p.wg.Go(func() { p.serve(listener) })
}

// Cut resets all connections, on both sides.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Traffic returns what has passed since the proxy was made or ResetTraffic was called last. A request
// is counted before the server gets it and a reply before the client does, so that the numbers are
// right as soon as a call has returned.
func (p *Proxy) Traffic() Traffic {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.traffic
}

// ResetTraffic starts counting anew.
func (p *Proxy) ResetTraffic() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traffic = Traffic{}
}

func (p *Proxy) close() {
	p.cancel()
	p.Refuse()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // refused
		}
		p.wg.Go(func() { p.connect(client) })
	}
}

// connect handles one client from its first byte to its last.
func (p *Proxy) connect(client net.Conn) {
	l := newLink(p, client)
	p.mu.Lock()
	p.traffic.Connections++
	p.links[l] = struct{}{}
	if p.ctx.Err() != nil {
		l.reset() // came in just before Cut, was not in the map for it
	}
	p.mu.Unlock()

	l.run()

	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}
