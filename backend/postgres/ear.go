package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aetomala/worklease/internal/pause"
)

// The times of an ear. The first is a variable for tests that count what is left behind.
var linger = 10 * time.Second // how long it listens on when nobody waits

const (
	silence    = 30 * time.Second       // for how long nothing need be heard
	answerTime = 10 * time.Second       // how long to wait for what is to be heard then
	firstRetry = 100 * time.Millisecond // how long to wait before it listens again
	lastRetry  = 30 * time.Second
)

var (
	errNotListening = fmt.Errorf("the server has not answered for %v", answerTime)
	errHeardNothing = fmt.Errorf("a notification was sent and not heard for %v: the network is silent, a pooler in transaction mode stands between, "+
		"or the listener is connected to another database", answerTime)
	errReturned = errors.New("the listener has returned without an error")
)

// ear hears for all who wait at a store, on one connection. A goroutine keeps that up, from the first who waits
// until there has been nobody for a while: so there is nothing to close, and those who wait now and then, for
// moments, do not cost a connection each time.
type ear struct {
	listener Listener
	report   func(error) // may be nil
	reports  sync.Mutex
	channel  func(context.Context) (string, error)
	echo     func(context.Context) error // has something heard on the channel

	mu      sync.Mutex
	waiters map[string]map[chan struct{}]struct{} // by payload
	end     context.CancelFunc                    // ends the goroutine; nil if there is none
	leaving *time.Timer                           // calls end; nil while somebody waits
}

func (e *ear) wake(payload string) (woken <-chan struct{}, stop func()) {
	channel := make(chan struct{}, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiters == nil {
		e.waiters = make(map[string]map[chan struct{}]struct{})
	}
	if e.waiters[payload] == nil {
		e.waiters[payload] = make(map[chan struct{}]struct{})
	}
	e.waiters[payload][channel] = struct{}{}
	if e.leaving != nil {
		e.leaving.Stop()
		e.leaving = nil
	}
	if e.end == nil {
		ctx, cancel := context.WithCancel(context.Background())
		e.end = cancel
		go e.run(ctx)
	}
	return channel, func() { e.stop(payload, channel) }
}

func (e *ear) stop(payload string, channel chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, waits := e.waiters[payload][channel]; !waits {
		return
	}
	delete(e.waiters[payload], channel)
	if len(e.waiters[payload]) == 0 {
		delete(e.waiters, payload)
	}
	if len(e.waiters) == 0 && e.end != nil {
		e.leaving = time.AfterFunc(linger, func() { e.leave() })
	}
}

// leave ends the goroutine, and reports whether it has, unless somebody waits.
func (e *ear) leave() bool {
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
func (e *ear) run(ctx context.Context) {
	retry := firstRetry
	for {
		err := e.listen(ctx, func() {
			retry = firstRetry
			e.tell(nil)
		})
		if ctx.Err() != nil || e.leave() {
			return
		}
		e.tell(err)
		if pause.Sleep(ctx, pause.Jitter(retry, 1)) != nil {
			return
		}
		retry = min(2*retry, lastRetry)
	}
}

func (e *ear) tell(err error) {
	if e.report != nil {
		e.reports.Lock() // one goroutine may be at its end when the next begins
		defer e.reports.Unlock()
		e.report(err)
	}
}

// listen returns when the connection is lost. It calls works when something was heard on it.
func (e *ear) listen(ctx context.Context, works func()) error {
	channel, err := within(ctx, e.channel)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &connection{listening: make(chan struct{}), heard: make(chan struct{}, 1), lost: make(chan struct{})}
	go func() {
		defer close(c.lost)
		c.err = e.listener.Listen(ctx, channel, sync.OnceFunc(func() {
			e.rouse() // nobody knows what has become free before
			close(c.listening)
		}), func(payload string) {
			e.hear(payload)
			signal(c.heard)
		})
	}()
	err = e.attend(ctx, c, works)
	cancel()
	<-c.lost
	if err == nil {
		err = c.err
	}
	if err == nil {
		err = errReturned
	}
	return fmt.Errorf("postgres: listen: %w", err)
}

// connection is what is known of a Listen that runs. err is for those who have seen that it is lost.
type connection struct {
	listening, heard, lost chan struct{}
	err                    error
}

// attend returns why a connection is given up, or nil when it is lost. A silent one says nothing by itself, and
// one behind a pooler may seem to be in order: only what is heard shows that something can be.
func (e *ear) attend(ctx context.Context, c *connection, works func()) error {
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case <-c.listening:
	case <-c.lost:
		return nil
	case <-timer.C:
		return errNotListening
	}
	for first := true; ; first = false {
		if _, err := within(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, e.echo(ctx) }); err != nil {
			return err
		}
		timer.Reset(answerTime)
		select {
		case <-c.heard:
		case <-c.lost:
			return nil
		case <-timer.C:
			return errHeardNothing
		}
		if first {
			works()
		}
		if !c.idle(timer) {
			return nil
		}
	}
}

// idle waits until nothing has been heard for a while, and is false if the connection is lost. What others have
// heard of them, one hears too: so it is one of all who listen on a channel that asks for an echo.
func (c *connection) idle(timer *time.Timer) bool {
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

// within makes a call that may take as long as an answer.
func within[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return call(ctx)
}

// hear tells those who wait for what has a payload, and rouse tells all.
func (e *ear) hear(payload string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for channel := range e.waiters[payload] {
		signal(channel)
	}
}

func (e *ear) rouse() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, channels := range e.waiters {
		for channel := range channels {
			signal(channel)
		}
	}
}

// signal leaves a value for whoever looks, unless there is one.
func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
