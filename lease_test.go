package worklease_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for name, tc := range map[string]struct {
		backend backend.Backend
		cfg     worklease.Config
		match   []error
	}{
		"nil backend":         {nil, worklease.Config{TTL: time.Second, HolderID: "a"}, []error{worklease.ErrNilBackend}},
		"zero config":         {memory.New(), worklease.Config{}, nil},
		"zero TTL":            {memory.New(), worklease.Config{HolderID: "a"}, nil},
		"negative TTL":        {memory.New(), worklease.Config{TTL: -time.Second, HolderID: "a"}, nil},
		"TTL of 1 ns":         {memory.New(), worklease.Config{TTL: 1, HolderID: "a"}, nil},
		"TTL just below 1 ms": {memory.New(), worklease.Config{TTL: time.Millisecond - 1, HolderID: "a"}, nil},
		"no holder ID":        {memory.New(), worklease.Config{TTL: time.Second}, nil},
		"NUL":                 {memory.New(), worklease.Config{TTL: time.Second, HolderID: "a\x00b"}, nil},
		"broken UTF-8":        {memory.New(), worklease.Config{TTL: time.Second, HolderID: "a\xff"}, nil},
		"1,025 bytes":         {memory.New(), worklease.Config{TTL: time.Second, HolderID: strings.Repeat("a", 1025)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			lease, err := worklease.New(tc.backend, tc.cfg)
			if lease != nil {
				t.Error("there is a Lease beside the error")
			}
			mustMatch(t, err, append(tc.match, worklease.ErrConfigInvalid)...)
		})
	}
	for name, cfg := range map[string]worklease.Config{
		"TTL of 1 ms":      {TTL: time.Millisecond, HolderID: "a"},
		"the longest TTL":  {TTL: math.MaxInt64, HolderID: "a"},
		"white space":      {TTL: time.Second, HolderID: "  "},
		"1,024 bytes":      {TTL: time.Second, HolderID: strings.Repeat("ä", 512)},
		"odd, but a name":  {TTL: time.Second, HolderID: "a/b'c\"d\n"},
		"replacement rune": {TTL: time.Second, HolderID: "\uFFFD"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a millisecond may pass unnoticed otherwise
				lease, err := worklease.New(memory.New(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				if token := acquire(t, lease, "w"); token.HolderID() != cfg.HolderID {
					t.Errorf("acquired as %q", token.HolderID())
				}
			})
		})
	}
}

func TestConfigErrorsHaveOneParent(t *testing.T) {
	for _, err := range []error{worklease.ErrNilBackend, worklease.ErrRetentionRequired} {
		mustMatch(t, err, worklease.ErrConfigInvalid)
	}
	mustNotMatch(t, worklease.ErrNilBackend, worklease.ErrRetentionRequired)
	for sentinel, of := range map[error]error{
		worklease.ErrFenced: backend.ErrFenced, worklease.ErrLeaseHeld: backend.ErrLeaseHeld,
		worklease.ErrLeaseExpired: backend.ErrLeaseExpired, worklease.ErrInvalidExitMode: backend.ErrInvalidExitMode,
	} {
		if sentinel != of {
			t.Errorf("%v is not the backend's own", sentinel)
		}
	}
}

// untouchable is a store that must not be called.
type untouchable struct {
	backend.Backend
	t *testing.T
}

func (u untouchable) Acquire(context.Context, string, string, time.Duration) (backend.LeaseRecord, error) {
	u.t.Error("the store was called")
	return backend.LeaseRecord{}, nil
}

func TestBadInputIsRefusedBeforeTheStoreOrAnObserverSeesIt(t *testing.T) {
	seen := &recorder{}
	lease := newObserved(t, untouchable{t: t}, "a", time.Second, seen)
	for name, workID := range map[string]string{
		"empty": "", "NUL": "\x00", "broken UTF-8": "w\xc3", "1,025 bytes": strings.Repeat("w", 1025),
	} {
		token, err := lease.Acquire(t.Context(), workID)
		if err == nil || token != (worklease.Token{}) {
			t.Errorf("%s: acquired %v, %v", name, token, err)
		}
		mustNotMatch(t, err, worklease.ErrConfigInvalid, worklease.ErrLeaseHeld, worklease.ErrFenced,
			worklease.ErrLeaseExpired, worklease.ErrInvalidExitMode)
	}

	var zero worklease.Token
	ctx := t.Context()
	_, readErr := lease.ReadCheckpoint(ctx, zero)
	for name, err := range map[string]error{
		"ReadCheckpoint": readErr, "Checkpoint": lease.Checkpoint(ctx, zero, []byte("x")), "Renew": lease.Renew(ctx, zero),
		"Release": lease.Release(ctx, zero, worklease.ExitFinished), "Forget": lease.Forget(ctx, zero),
	} {
		if !errors.Is(err, worklease.ErrFenced) {
			t.Errorf("%s of a zero Token: %v", name, err)
		}
	}
	renewCtx, stop := lease.StartRenewal(ctx, zero)
	stop()
	if cause := context.Cause(renewCtx); !errors.Is(cause, worklease.ErrFenced) {
		t.Errorf("renewal of a zero Token ends with %v", cause)
	}
	if events := seen.all(); len(events) != 0 {
		t.Errorf("the observer saw %v", events)
	}
}

func TestNilContextIsAnError(t *testing.T) {
	b := memory.New()
	lease := newLease(t, b, "a", time.Hour)
	token := acquire(t, lease, "w")
	var none context.Context
	_, acquireErr := lease.Acquire(none, "other", nil, worklease.WithWaitForLease())
	_, readErr := lease.ReadCheckpoint(none, token)
	for name, err := range map[string]error{
		"Acquire": acquireErr, "ReadCheckpoint": readErr, "Checkpoint": lease.Checkpoint(none, token, []byte("x")),
		"Renew": lease.Renew(none, token), "Release": lease.Release(none, token, worklease.ExitFinished),
		"Forget": lease.Forget(none, token),
	} {
		if err == nil {
			t.Errorf("%s succeeds without a context", name)
		}
		mustNotMatch(t, err, worklease.ErrFenced, worklease.ErrLeaseExpired)
	}
	renewCtx, stop := lease.StartRenewal(none, token)
	stop()
	if renewCtx.Err() == nil {
		t.Error("renewal begins without a context")
	}
	if found, err := lease.ReadCheckpoint(t.Context(), token); err != nil || found.State != nil {
		t.Errorf("the refused calls left %q, %v", found.State, err)
	}
	if err := lease.Renew(t.Context(), token); err != nil {
		t.Errorf("the refused calls cost the lease: %v", err)
	}
}

func TestErrorsNameOperationWorkAndHolder(t *testing.T) {
	s := newStore()
	lease := newLease(t, s, "holder-1", time.Hour)
	token := acquire(t, lease, "work-1")
	_, held := lease.Acquire(t.Context(), "work-1")
	other := newLease(t, s, "holder-2", time.Hour)
	if err := lease.Forget(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	acquire(t, other, "work-1")
	_, read := lease.ReadCheckpoint(t.Context(), token)
	for op, err := range map[string]error{
		"acquire": held, "read": read, "checkpoint": lease.Checkpoint(t.Context(), token, nil),
		"renew": lease.Renew(t.Context(), token), "release": lease.Release(t.Context(), token, worklease.ExitFinished),
		"forget": lease.Forget(t.Context(), token),
	} {
		for _, part := range []string{op, `"work-1"`, `"holder-1"`} {
			if n := strings.Count(fmt.Sprint(err), part); n == 0 || n > 1 && part == `"holder-1"` && op != "acquire" {
				t.Errorf("%s: the error %q names %s %d times", op, err, part, n)
			}
		}
	}
}

func TestInvalidExitModeDoesNotReachTheStore(t *testing.T) {
	s := newStore()
	s.OnRelease = func(context.Context, backend.LeaseRecord, backend.ExitMode) error {
		t.Error("the store was called")
		return nil
	}
	seen := &recorder{}
	lease := newObserved(t, s, "a", time.Hour, seen)
	token := acquire(t, lease, "w")
	renewCtx, stop := lease.StartRenewal(t.Context(), token)
	defer stop()
	for _, mode := range []worklease.ExitMode{worklease.ExitNone, worklease.ExitExpired, 9, 255} {
		mustMatch(t, lease.Release(t.Context(), token, mode), worklease.ErrInvalidExitMode)
	}
	if _, ok := worklease.LeaseWindow(renewCtx); !ok {
		t.Error("a refused Release closed the window")
	}
	if n := len(eventsOf[worklease.ReleaseEvent](seen)); n != 0 {
		t.Errorf("%d events", n)
	}
}

func TestHolderThatLostItsLeaseChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		first, second := newLease(t, b, "a", 10*time.Second), newLease(t, b, "b", time.Hour)
		zombie := acquire(t, first, "w")
		if err := first.Checkpoint(t.Context(), zombie, []byte("of a")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // paused for longer than its TTL
		current := acquire(t, second, "w")
		if err := second.Checkpoint(t.Context(), current, []byte("of b")); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			first.Checkpoint(t.Context(), zombie, []byte("late")),
			first.Renew(t.Context(), zombie),
			first.Release(t.Context(), zombie, worklease.ExitFinished),
			first.Forget(t.Context(), zombie),
		} {
			mustMatch(t, err, worklease.ErrFenced)
		}
		found, err := second.ReadCheckpoint(t.Context(), current)
		if err != nil || string(found.State) != "of b" || found.PrevExit != worklease.ExitExpired || found.PrevHolderID != "a" {
			t.Errorf("b finds %+v, %v", found, err)
		}
		if err := second.Renew(t.Context(), current); err != nil {
			t.Errorf("b cannot renew: %v", err)
		}
	})
}

func TestEveryStateOfARowCanBeAcquired(t *testing.T) {
	leave := func(mode worklease.ExitMode) func(*testing.T, worklease.Lease, worklease.Token) {
		return func(t *testing.T, l worklease.Lease, token worklease.Token) {
			if err := l.Release(t.Context(), token, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		end  func(*testing.T, worklease.Lease, worklease.Token)
		want worklease.Checkpoint
	}{
		"finished":  {leave(worklease.ExitFinished), worklease.Checkpoint{State: []byte("s"), PrevExit: worklease.ExitFinished, PrevHolderID: "a"}},
		"abandoned": {leave(worklease.ExitAbandoned), worklease.Checkpoint{State: []byte("s"), PrevExit: worklease.ExitAbandoned, PrevHolderID: "a"}},
		"retired":   {leave(worklease.ExitRetired), worklease.Checkpoint{State: []byte("s"), PrevExit: worklease.ExitRetired, PrevHolderID: "a"}},
		"lapsed": {func(*testing.T, worklease.Lease, worklease.Token) { time.Sleep(10 * time.Second) },
			worklease.Checkpoint{State: []byte("s"), PrevExit: worklease.ExitExpired, PrevHolderID: "a"}},
		"forgotten": {func(t *testing.T, l worklease.Lease, token worklease.Token) {
			if err := l.Forget(t.Context(), token); err != nil {
				t.Fatal(err)
			}
		}, worklease.Checkpoint{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				first, second := newLease(t, b, "a", 10*time.Second), newLease(t, b, "b", 10*time.Second)
				token := acquire(t, first, "w")
				if err := first.Checkpoint(t.Context(), token, []byte("s")); err != nil {
					t.Fatal(err)
				}
				tc.end(t, first, token)
				next := acquire(t, second, "w")
				found, err := second.ReadCheckpoint(t.Context(), next)
				if err != nil || string(found.State) != string(tc.want.State) || found.PrevExit != tc.want.PrevExit || found.PrevHolderID != tc.want.PrevHolderID {
					t.Errorf("found %+v, %v, want %+v", found, err, tc.want)
				}
				if next.FencingToken() <= token.FencingToken() {
					t.Errorf("token %d after %d", next.FencingToken(), token.FencingToken())
				}
			})
		})
	}
}

func TestLastCheckpointToArriveIsTheOneThatCounts(t *testing.T) {
	lease := newLease(t, memory.New(), "a", time.Hour)
	token := acquire(t, lease, "w")
	for _, state := range []string{"step 2", "step 1"} {
		if err := lease.Checkpoint(t.Context(), token, []byte(state)); err != nil {
			t.Fatal(err)
		}
	}
	if found, _ := lease.ReadCheckpoint(t.Context(), token); string(found.State) != "step 1" {
		t.Errorf("read %q", found.State)
	}
}

func TestTokenIsAValueThatNeverMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := newLease(t, memory.New(), "h", 10*time.Second)
		token := acquire(t, lease, "w")
		copied, expiry := token, time.Now().Add(10*time.Second)
		if token.WorkID() != "w" || token.HolderID() != "h" || token.FencingToken() != 1 || !token.ExpiresAt().Equal(expiry) {
			t.Errorf("token %v", token)
		}
		time.Sleep(5 * time.Second)
		if err := lease.Renew(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		if token != copied || !token.ExpiresAt().Equal(expiry) {
			t.Errorf("the token changed to %v", token)
		}
		if got, want := token.String(), `worklease.Token{workID="w" holderID="h" fencingToken=1 expiresAt=2000-01-01T00:00:10Z}`; got != want {
			t.Errorf("prints as %s, want %s", got, want)
		}
		if got, want := (worklease.Token{}).String(), `worklease.Token{workID="" holderID="" fencingToken=0 expiresAt=0001-01-01T00:00:00Z}`; got != want {
			t.Errorf("the zero Token prints as %s, want %s", got, want)
		}
	})
}
