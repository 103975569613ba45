// Package wake has what stores have in common that hear from their server what has become free: who waits for
// what, and a connection that is kept up while somebody waits.
package wake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/aetomala/worklease/internal/pause"
)

// The usual times of an ear.
const (
	linger     = 10 * time.Second       // how long it listens on when nobody waits
	silence    = 30 * time.Second       // for how long nothing need be heard
	answerTime = 10 * time.Second       // how long to wait for what is to be heard then
	firstRetry = 100 * time.Millisecond // how long to wait before it listens again
	lastRetry  = 30 * time.Second

	// How many of all who wait are told at once that they may have missed something, and the pause before the next.
	rouseAtOnce = 100
	rousePause  = 100 * time.Millisecond
)

var (
	errNotListening = errors.New("the server does not answer")
	// ErrHeardNothing is the error of a connection that was given up since nothing was heard on it.
	ErrHeardNothing = errors.New("what was sent has not been heard: the network is silent, a pooler stands between that loses it, " +
		"or what listens is connected to another database")
	errReturned     = errors.New("the listener has returned without an error")
	errNotReturning = errors.New("the listener does not return, although its context has ended, and until then there is no other")
)

// Ear hears for all who wait at a store, on one connection. A goroutine keeps that up, from the first who waits
// until there has been nobody for a while: so there is nothing to close, and those who wait now and then, for
// moments, do not cost a connection each time. Its fields are set before it is used, and it is not copied.
type Ear struct {
	// Listen opens a connection to the server and returns an error when it is lost or could not be had.
	// When ctx ends it ends the connection, and returns soon after. listening is called once it
	// hears, and then heard with what becomes free. Neither blocks. A panic is told as an error.
	Listen func(ctx context.Context, listening func(), heard func(name string)) error
	// Echo has something heard of all who listen, on behalf of nobody.
	Echo func(ctx context.Context) error
	// Report is told how it stands: nil when something has been heard on a connection, and an error each time
	// that one was lost or could not be had. Calls come one after another. It may be nil.
	Report func(error)
	// Linger is how long it listens on when nobody waits, Silence for how long nothing need be heard, and Answer
	// how long to wait for what is to be heard then. Zero is what they usually are.
	Linger, Silence, Answer time.Duration

	reports sync.Mutex
	mu      sync.Mutex
	waiters map[string]map[chan struct{}]struct{} // by name
	end     context.CancelFunc                    // ends the goroutine; nil if there is none
	leaving *time.Timer                           // calls end; nil while somebody waits
}

// Wake is that of [backend.Waker], for a name of the work ID.
func (e *Ear) Wake(name string) (woken <-chan struct{}, stop func()) {
	channel := make(chan struct{}, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiters == nil {
		e.waiters = make(map[string]map[chan struct{}]struct{})
	}
	if e.waiters[name] == nil {
		e.waiters[name] = make(map[chan struct{}]struct{})
	}
	e.waiters[name][channel] = struct{}{}
	if e.leaving != nil {
		e.leaving.Stop()
		e.leaving = nil
	}
	if e.end == nil {
		ctx, cancel := context.WithCancel(context.Background())
		e.end = cancel
		go e.run(ctx)
	}
	return channel, func() { e.stop(name, channel) }
}

func (e *Ear) stop(name string, channel chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, waits := e.waiters[name][channel]; !waits {
		return
	}
	delete(e.waiters[name], channel)
	if len(e.waiters[name]) == 0 {
		delete(e.waiters, name)
	}
	if len(e.waiters) == 0 && e.end != nil {
		e.leaving = time.AfterFunc(cmp.Or(e.Linger, linger), func() { e.leave() })
	}
}

// leave ends the goroutine, and reports whether it has, unless somebody waits.
func (e *Ear) leave() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiters) > 0 {
		return false
	}
	if e.end != nil {
		e.end()
		e.end = nil
	}
	return true
}

// run listens until ctx ends.
func (e *Ear) run(ctx context.Context) {
	retry := firstRetry
	for {
		err := e.listen(ctx, func() {
			retry = firstRetry
			e.tell(ctx, nil)
		})
		if ctx.Err() != nil || e.leave() {
			return
		}
		e.tell(ctx, err)
		if pause.Sleep(ctx, pause.Jitter(retry, 1)) != nil {
			return
		}
		retry = min(2*retry, lastRetry)
	}
}

// tell reports how the goroutine of ctx stands. One may be at its end when the next begins, and has nothing to
// say then.
func (e *Ear) tell(ctx context.Context, err error) {
	if e.Report == nil {
		return
	}
	e.reports.Lock()
	defer e.reports.Unlock()
	if ctx.Err() == nil {
		e.Report(err)
	}
}

// listen returns when the connection is lost. It calls works when something was heard on it.
func (e *Ear) listen(wanted context.Context, works func()) error {
	ctx, cancel := context.WithCancel(wanted)
	c := &connection{listening: make(chan struct{}), heard: make(chan struct{}, 1), lost: make(chan struct{})}
	go func() {
		defer close(c.lost)
		defer c.survive()
		c.err = e.Listen(ctx, sync.OnceFunc(func() {
			go e.rouse(ctx) // nobody knows what has become free before
			close(c.listening)
		}), func(name string) {
			e.hear(name)
			signal(c.heard)
		})
	}()
	err := e.attend(ctx, c, works)
	cancel()
	if !c.returns(cmp.Or(e.Answer, answerTime)) {
		e.tell(wanted, fmt.Errorf("%w, and %w", err, errNotReturning))
		<-c.lost
	}
	switch {
	case errors.Is(err, errNotListening) && c.err != nil: // it may know what it was waiting for
		return fmt.Errorf("%w: %w", err, c.err)
	case err != nil:
		return err
	case c.err != nil:
		return c.err
	}
	return errReturned
}

// connection is what is known of a Listen that runs. err is for those who have seen that it is lost.
type connection struct {
	listening, heard, lost chan struct{}
	err                    error
}

// survive makes an error of a panic in Listen, which could not reach anybody from there.
func (c *connection) survive() {
	if p := recover(); p != nil {
		c.err = fmt.Errorf("the listener panicked: %v\n%s", p, debug.Stack())
	}
}

// returns reports whether Listen, whose context has ended, is over within d.
func (c *connection) returns(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.lost:
		return true
	case <-timer.C:
		return false
	}
}

// attend returns why a connection is given up, or nil when it is lost. A silent one says nothing by itself, and
// one behind a pooler may seem to be in order: only what is heard shows that something can be.
func (e *Ear) attend(ctx context.Context, c *connection, works func()) error {
	timer := time.NewTimer(cmp.Or(e.Answer, answerTime))
	defer timer.Stop()
	select {
	case <-c.listening:
	case <-c.lost:
		return nil
	case <-timer.C:
		return errNotListening
	}
	for first := true; ; first = false {
		if err := e.echo(ctx); err != nil {
			return err
		}
		timer.Reset(cmp.Or(e.Answer, answerTime))
		select {
		case <-c.heard:
		case <-c.lost:
			return nil
		case <-timer.C:
			return ErrHeardNothing
		}
		if first {
			works()
		}
		if !c.idle(timer, cmp.Or(e.Silence, silence)) {
			return nil
		}
	}
}

// idle waits until nothing has been heard for a while, and is false if the connection is lost. What others have
// heard of them, one hears too: so it is one of all who listen on a channel that asks for an echo.
func (c *connection) idle(timer *time.Timer, silence time.Duration) bool {
	timer.Reset(pause.Jitter(silence, 0.2))
	for {
		select {
		case <-c.heard:
			timer.Reset(pause.Jitter(silence, 0.2))
		case <-c.lost:
			return false
		case <-timer.C:
			return true
		}
	}
}

func (e *Ear) echo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(e.Answer, answerTime))
	defer cancel()
	return e.Echo(ctx)
}

// hear tells those who wait for what has a name.
func (e *Ear) hear(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for channel := range e.waiters[name] {
		signal(channel)
	}
}

// rouse tells all who wait, some at a time: their attempts take the connections that renewals need. If ctx ends, who
// is left is told with the next connection.
func (e *Ear) rouse(ctx context.Context) {
	for some := range slices.Chunk(e.all(), rouseAtOnce) {
		for _, channel := range some {
			signal(channel)
		}
		if pause.Sleep(ctx, rousePause) != nil {
			return
		}
	}
}

// all returns the channels of those who wait, in no order. One whose stop was called since may be told: nobody looks.
func (e *Ear) all() (channels []chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, of := range e.waiters {
		channels = slices.AppendSeq(channels, maps.Keys(of))
	}
	return channels
}

// signal leaves a value for whoever looks, unless there is one.
func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
