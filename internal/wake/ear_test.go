package wake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errLost = errors.New("lost")

// line is what leads from a server to an ear, and what goes the other way.
type line struct {
	dead    atomic.Bool // connecting fails
	hanging atomic.Bool // connecting takes for ever
	silent  atomic.Bool // nothing comes over any more, on connections that are there and on new ones
	mute    atomic.Bool // the store's own connections fail

	heard    atomic.Pointer[func(string)]
	cut      chan error
	connects atomic.Int64
	echoes   atomic.Int64
}

func (l *line) listen(ctx context.Context, listening func(), heard func(name string)) error {
	l.connects.Add(1)
	switch {
	case l.dead.Load():
		return errLost
	case l.hanging.Load():
		<-ctx.Done()
		return ctx.Err()
	}
	l.heard.Store(&heard)
	defer l.heard.Store(nil)
	listening()
	select {
	case err := <-l.cut:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// say is what the server does with a notification.
func (l *line) say(name string) {
	if heard := l.heard.Load(); heard != nil && !l.silent.Load() {
		(*heard)(name)
	}
}

func (l *line) echo(context.Context) error {
	if l.mute.Load() {
		return errLost
	}
	l.echoes.Add(1)
	l.say("")
	return nil
}

// mustReconnect loses the connection and fails unless another is opened soon.
func (l *line) mustReconnect(t *testing.T) {
	t.Helper()
	start, n := time.Now(), l.connects.Load()
	l.cut <- errLost
	for l.connects.Load() == n {
		time.Sleep(time.Millisecond)
	}
	if took := time.Since(start); took > 2*firstRetry {
		t.Errorf("opened again after %v", took)
	}
}

// log is what an ear has reported.
type log struct {
	mu      sync.Mutex
	entries []string
}

// take returns what has come since it was called last.
func (l *log) take() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := l.entries
	l.entries = nil
	return entries
}

func (l *log) add(err error) {
	entry := "works"
	switch {
	case errors.Is(err, ErrHeardNothing):
		entry = "deaf"
	case errors.Is(err, errNotListening):
		entry = "hangs"
	case errors.Is(err, errLost):
		entry = "lost"
	case err != nil:
		entry = err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, entry)
}

// newEar is for a test in a bubble, which fails with what is left of it at the end.
func newEar(t *testing.T) (*Ear, *line, *log) {
	t.Cleanup(func() { time.Sleep(linger + answerTime) })
	l, reports := &line{cut: make(chan error)}, new(log)
	return &Ear{Listen: l.listen, Echo: l.echo, Report: reports.add}, l, reports
}

func told(channel <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// mustHear fails unless a waiter is told of its own, and of no other.
func mustHear(t *testing.T, l *line, woken <-chan struct{}, name string) {
	t.Helper()
	if told(woken) {
		t.Error("told of nothing")
	}
	l.say("another")
	if told(woken) {
		t.Error("told of another")
	}
	l.say(name)
	if !told(woken) {
		t.Error("not told")
	}
}

func TestEarListensWhileSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l, reports := newEar(t)
		for round := range 2 {
			woken, stop := e.Wake("w")
			if !told(woken) {
				t.Error("not told when listening began")
			}
			mustHear(t, l, woken, "w")
			stop()
			time.Sleep(linger - time.Second)
			if l.heard.Load() == nil {
				t.Error("the connection has ended with the first pause")
			}
			again, stop := e.Wake("w") // what listens already is nobody's news
			mustHear(t, l, again, "w")
			l.say("w")
			if told(woken) {
				t.Error("told after stop")
			}
			stop()
			stop()
			time.Sleep(linger - time.Second) // counted from the last
			if l.heard.Load() == nil {
				t.Error("the connection has ended too early")
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if l.heard.Load() != nil || int(l.connects.Load()) != round+1 || len(e.waiters) != 0 {
				t.Errorf("in round %d: %d connections, %d waiters", round, l.connects.Load(), len(e.waiters))
			}
		}
		if got := fmt.Sprint(reports.take()); got != "[works works]" {
			t.Errorf("reports: %v", got)
		}
	})
}

func TestLostConnectionIsOpenedAgainAndEverybodyTriesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l, reports := newEar(t)
		var woken []<-chan struct{}
		for i := range 10 {
			channel, stop := e.Wake(fmt.Sprint(i % 5))
			t.Cleanup(stop)
			woken = append(woken, channel)
		}
		synctest.Wait()
		for _, channel := range woken {
			told(channel) // that listening has begun, if it has since
		}
		for round := range 2 {
			l.mustReconnect(t)
			for i, channel := range woken {
				if !told(channel) {
					t.Errorf("%d was not told in round %d", i, round)
				}
				if told(channel) {
					t.Errorf("%d was told twice in round %d", i, round)
				}
			}
		}
		mustHear(t, l, woken[0], "0")
		if got := fmt.Sprint(reports.take()); got != "[works lost works lost works]" {
			t.Errorf("reports: %v", got)
		}
	})
}

// Thousands who try all at once would keep the store from renewals, and those of all processes do so when a server is
// restarted.
func TestManyAreTold100AtATime(t *testing.T) {
	const waiters = 1050
	synctest.Test(t, func(t *testing.T) {
		e, l, _ := newEar(t)
		woken := make([]<-chan struct{}, waiters)
		for i := range woken {
			channel, stop := e.Wake(fmt.Sprint(i))
			t.Cleanup(stop)
			woken[i] = channel
		}
		count := func() (n int) {
			for _, channel := range woken {
				if told(channel) {
					n++
				}
			}
			return n
		}
		time.Sleep(time.Minute)
		count()
		l.mustReconnect(t)
		all := 0
		for step := range 11 {
			n := count()
			if n > rouseAtOnce {
				t.Errorf("%d are told at once", n)
			}
			if all += n; step == 0 && n == 0 {
				t.Error("nobody is told at once")
			}
			time.Sleep(rousePause)
		}
		if n := count(); all+n != waiters {
			t.Errorf("%d of %d are told", all+n, waiters)
		}
		// Who waits for what becomes free need not wait for that.
		l.mustReconnect(t)
		l.say("7")
		if !told(woken[7]) {
			t.Error("not told")
		}
	})
}

// What stays away is tried less and less often, by each at times of its own; what works for a moment begins anew.
func TestListeningBacksOff(t *testing.T) {
	for name, fault := range map[string]func(l *line, broken bool){
		"lost": func(l *line, broken bool) { l.dead.Store(broken) },
		"deaf": func(l *line, broken bool) { l.silent.Store(broken) }, // also a pooler, which answers the LISTEN
		"hangs": func(l *line, broken bool) {
			l.hanging.Store(broken)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, l, reports := newEar(t)
				fault(l, true)
				woken, stop := e.Wake("w")
				t.Cleanup(stop)
				time.Sleep(time.Hour)
				n := l.connects.Load()
				if least, most := int64(time.Hour/(2*lastRetry+answerTime)), int64(time.Hour/lastRetry)+10; n < least || n > most {
					t.Errorf("%d attempts in an hour, want %d to %d", n, least, most)
				}
				if got := slices.Compact(reports.take()); len(got) != 1 || got[0] != name {
					t.Errorf("reports: %v", got)
				}
				fault(l, false)
				time.Sleep(2*lastRetry + answerTime)
				told(woken)
				mustHear(t, l, woken, "w")
				l.mustReconnect(t)
				if got := reports.take(); len(got) < 3 || fmt.Sprint(got[len(got)-3:]) != "[works lost works]" {
					t.Errorf("reports: %v", got)
				}
			})
		})
	}
}

func TestSilentConnectionIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l, reports := newEar(t)
		woken, stop := e.Wake("w")
		t.Cleanup(stop)
		time.Sleep(time.Hour)
		if n, most := l.echoes.Load(), int64(time.Hour/silence)+1; n < most*8/10 || n > most || l.connects.Load() != 1 {
			t.Errorf("%d echoes in an hour of silence, %d connections", n, l.connects.Load())
		}
		// What others have to say is enough.
		n := l.echoes.Load()
		for range 1000 {
			l.say("another")
			time.Sleep(silence / 2)
		}
		if l.echoes.Load() > n+1 {
			t.Errorf("%d echoes among news", l.echoes.Load()-n)
		}
		told(woken)
		l.silent.Store(true)
		start := time.Now()
		for l.connects.Load() == 1 {
			time.Sleep(time.Second)
		}
		if took := time.Since(start); took > 48*time.Second {
			t.Errorf("noticed after %v", took)
		}
		l.silent.Store(false)
		if !told(woken) {
			t.Error("not told of what came meanwhile")
		}
		time.Sleep(answerTime + lastRetry)
		if got := fmt.Sprint(slices.Compact(reports.take())); got != "[works deaf works]" {
			t.Errorf("reports: %v", got)
		}
	})
}

// If the store cannot send, nobody can tell whether the connection is any good.
func TestEarIsTriedAgainWhenTheStoreCannotSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l, reports := newEar(t)
		woken, stop := e.Wake("w")
		synctest.Wait()
		l.mute.Store(true)
		time.Sleep(2 * silence)
		l.mute.Store(false)
		time.Sleep(2 * lastRetry)
		told(woken)
		mustHear(t, l, woken, "w")
		if got := fmt.Sprint(slices.Compact(reports.take())); got != "[works lost works]" {
			t.Errorf("reports: %v", got)
		}
		// Nobody waits, and nobody is told of what ends now.
		stop()
		l.dead.Store(true)
		n := l.connects.Load()
		l.cut <- errLost
		time.Sleep(time.Minute)
		if got := reports.take(); len(got) != 0 || l.connects.Load() != n {
			t.Errorf("reports: %v, %d connections more", got, l.connects.Load()-n)
		}
	})
}

// Whatever the ear is about to do, it ends when nobody waits.
func TestEarEndsInEveryStage(t *testing.T) {
	for name, begin := range map[string]func(*line){
		"listening": func(*line) {},
		"opening":   func(l *line) { l.hanging.Store(true) },
		"trying":    func(l *line) { l.silent.Store(true) },
		"pausing":   func(l *line) { l.dead.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, l, _ := newEar(t)
				begin(l)
				_, stop := e.Wake("w")
				time.Sleep(4 * time.Second)
				stop()
			})
		})
	}
}

// A listener is somebody else's code: whatever it does is told, and no more than once for each time.
func TestListenersThatMisbehave(t *testing.T) {
	for name, c := range map[string]struct {
		listen func(ctx context.Context, listening func(), heard func(string)) error
		want   string
	}{
		"it panics":               {func(context.Context, func(), func(string)) error { panic("no driver") }, "no driver"},
		"it returns at once":      {func(context.Context, func(), func(string)) error { return nil }, errReturned.Error()},
		"it says why it is slow":  {func(ctx context.Context, _ func(), _ func(string)) error { <-ctx.Done(); return errLost }, errLost.Error()},
		"it outlives its context": {func(context.Context, func(), func(string)) error { time.Sleep(time.Hour); return nil }, errNotReturning.Error()},
		"it hears before it can":  {func(_ context.Context, _ func(), heard func(string)) error { heard("w"); return errLost }, errLost.Error()},
		"it listens again and again": {func(_ context.Context, listening func(), _ func(string)) error {
			listening()
			listening()
			return errLost
		}, errLost.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reports []string
				e := &Ear{Listen: c.listen, Echo: (&line{}).echo, Report: func(err error) { reports = append(reports, fmt.Sprint(err)) }}
				_, stop := e.Wake("w")
				time.Sleep(2*answerTime + time.Second)
				synctest.Wait()
				if len(reports) == 0 || !strings.Contains(reports[0], c.want) || slices.Contains(reports, "<nil>") {
					t.Errorf("reports: %q", reports)
				}
				stop()
				time.Sleep(2 * time.Hour)
			})
		})
	}
}
