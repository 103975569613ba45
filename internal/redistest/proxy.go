package redistest

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// Proxy stands between clients and a server. Its methods are safe for concurrent use. It ends with the test.
type Proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	lose   string // close instead of passing on the answer to a request that contains it
	lost   int
	thawed chan struct{} // closed unless frozen
	closed bool
}

// NewProxy starts a proxy in front of the server at addr.
func NewProxy(tb testing.TB, addr string) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{listener: listener, target: addr, conns: make(map[net.Conn]struct{}), thawed: make(chan struct{})}
	close(p.thawed)
	p.wg.Go(p.serve)
	tb.Cleanup(p.close)
	return p
}

// Addr returns where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// LoseAnswers closes the connection on which a request that contains word is answered, from now on, in place
// of handing the answer over. An empty word ends that.
func (p *Proxy) LoseAnswers(word string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = word
}

// Lost returns how many answers have been lost, which is how often such a request has been made.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Freeze holds answers back, until Thaw: a network that has gone silent.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thawed = make(chan struct{})
}

// Thaw lets go what Freeze has held back.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.thawed)
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(func() { p.connect(client) })
	}
}

func (p *Proxy) connect(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.add(client, server) {
		return
	}
	defer p.drop(client, server)
	var (
		mu   sync.Mutex
		lose bool
	)
	p.wg.Go(func() {
		defer server.Close()
		p.pass(client, server, func(request string) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.lose != "" && strings.Contains(request, p.lose) {
				mu.Lock()
				lose = true
				mu.Unlock()
			}
			return true
		})
	})
	p.pass(server, client, func(string) bool {
		p.mu.Lock()
		thawed := p.thawed
		p.mu.Unlock()
		<-thawed
		mu.Lock()
		defer mu.Unlock()
		if lose {
			p.mu.Lock()
			p.lost++
			p.mu.Unlock()
		}
		return !lose
	})
}

// pass copies until look says no.
func (p *Proxy) pass(from io.Reader, to io.Writer, look func(string) bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !look(string(buffer[:n])) {
			return
		}
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *Proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		p.conns[conn] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.conns, conn)
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	select {
	case <-p.thawed:
	default:
		close(p.thawed)
	}
	p.listener.Close()
	for conn := range p.conns {
		conn.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}
