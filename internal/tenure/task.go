package tenure

import (
	"context"
	"fmt"
	"runtime"

	"github.com/aetomala/worklease"
)

// task is a call made in another goroutine. A panic there, or a Goexit, becomes the caller's own when
// it asks for the result, so that a recover around Run works as if there were one goroutine.
type task struct {
	f        func() error
	done     chan struct{}
	returned bool
	err      error
	panicked any
}

func newTask(f func() error) *task {
	return &task{f: f, done: make(chan struct{})}
}

func (t *task) run() {
	defer close(t.done)
	defer func() {
		if !t.returned {
			t.panicked = recover()
		}
	}()
	t.err = t.f()
	t.returned = true
}

// result is called once done is closed.
func (t *task) result() error {
	switch {
	case t.returned:
		return t.err
	case t.panicked != nil:
		panic(t.panicked)
	}
	runtime.Goexit()
	return nil
}

// within calls f, and returns when f does or ctx ends: a driver may not know of ctx. Nobody is left to
// hear what becomes of f then, were it a panic.
func within(ctx context.Context, verb string, token worklease.Token, f func() error) error {
	if err := ctx.Err(); err != nil {
		return failed(verb, token, err)
	}
	t := newTask(f)
	go t.run()
	select {
	case <-t.done:
		return t.result()
	case <-ctx.Done():
	}
	select {
	case <-t.done: // both at once: what f says is worth more
		return t.result()
	default:
		return failed(verb, token, fmt.Errorf("no answer in time: %w", ctx.Err()))
	}
}
