package pgtest

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

// The two directions of a connection.
const (
	up   = iota // from the client to the server
	down        // from the server to the client
)

// link is one client's connection through a proxy. Each direction has a goroutine that reads and
// stamps what arrives and one that hands it over when its time has come.
type link struct {
	proxy  *Proxy
	client net.Conn
	ctx    context.Context // ends when the link is to end
	cancel context.CancelFunc

	// Guarded by proxy.mu.
	frames    [2]framer
	spoke     bool // the client has sent something since the server did
	executing bool // a statement was executed whose reply isn't complete
	replying  bool // the first bytes of the reply have been seen
	dropping  bool // a reply was lost; so is all that follows
	abrupt    bool // end with a reset instead of a close
}

// piece is what one read returned.
type piece struct {
	bytes []byte
	at    time.Time
}

func newLink(p *Proxy, client net.Conn) *link {
	l := &link{proxy: p, client: client}
	l.frames[up].startup = true
	l.ctx, l.cancel = context.WithCancel(p.ctx)
	return l
}

// reset ends the link in a way that both sides take for a crash. The caller holds proxy.mu.
func (l *link) reset() {
	l.abrupt = true
	l.cancel()
}

// run returns when the link has ended and both connections are closed.
func (l *link) run() {
	defer l.cancel()
	var dialer net.Dialer
	server, err := dialer.DialContext(l.ctx, "tcp", l.proxy.target)
	if err != nil {
		l.proxy.mu.Lock()
		l.reset()
		l.proxy.mu.Unlock()
		l.end(l.client)
		return
	}
	var wg sync.WaitGroup
	l.pump(&wg, up, l.client, server)
	l.pump(&wg, down, server, l.client)
	<-l.ctx.Done()
	l.end(l.client)
	l.end(server)
	wg.Wait()
}

func (l *link) end(conn net.Conn) {
	l.proxy.mu.Lock()
	abrupt := l.abrupt
	l.proxy.mu.Unlock()
	if tcp, ok := conn.(*net.TCPConn); ok && abrupt {
		_ = tcp.SetLinger(0) // fails only for what is closed already
	}
	_ = conn.Close()
}

func (l *link) pump(wg *sync.WaitGroup, direction int, from, to net.Conn) {
	queue := make(chan piece, 64)
	wg.Go(func() {
		defer close(queue)
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			select {
			case queue <- piece{bytes: slices.Clone(buf[:n]), at: time.Now()}:
			case <-l.ctx.Done():
				return
			}
		}
	})
	wg.Go(func() {
		defer l.cancel()
		for p := range queue {
			if !l.hold(direction, p.at) {
				return
			}
			forward, last := l.pass(direction, p.bytes)
			if forward {
				if _, err := to.Write(p.bytes); err != nil {
					return
				}
			}
			if last {
				return
			}
		}
		// The queue has ended because that side has closed, which is held back like bytes are.
		l.hold(direction, time.Now())
	})
}

// hold waits until what was read at that time may go on. It is false if the link ends before.
func (l *link) hold(direction int, at time.Time) bool {
	l.proxy.mu.Lock()
	delay := l.proxy.delay[direction]
	l.proxy.mu.Unlock()
	if wait := time.Until(at.Add(delay)); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			return false
		}
	}
	l.proxy.mu.Lock()
	thawed := l.proxy.thawed
	l.proxy.mu.Unlock()
	select {
	case <-thawed:
		return l.ctx.Err() == nil
	case <-l.ctx.Done():
		return false
	}
}

// pass counts bytes that are about to be handed over, and says whether they are to be, and whether
// the link ends after them.
func (l *link) pass(direction int, b []byte) (forward, last bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	kinds := l.frames[direction].feed(b)
	if direction == up {
		l.spoke = true
		for _, kind := range kinds {
			p.traffic.counts[kind]++
			if len(p.traffic.Messages) < 4096 {
				p.traffic.Messages += string(rune(kind))
			}
			if kind == 'E' || kind == 'Q' {
				l.executing, l.replying = true, false
			}
		}
		return true, false
	}

	if l.spoke {
		l.spoke = false
		p.traffic.RoundTrips++
	}
	if l.executing && p.drop && !l.replying && b[0] != 'I' { // I answers an empty query, a ping
		l.dropping = true
	}
	l.replying = true
	complete := false
	for _, kind := range kinds {
		if kind == 'Z' { // ReadyForQuery
			complete, l.executing = true, false
		}
	}
	return !l.dropping, l.dropping && complete && p.closeAfter
}
