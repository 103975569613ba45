package redis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/redis"
	"github.com/aetomala/worklease/internal/redistest"
)

// reports are what a store with wake-ups has said of its connection.
type reports chan error

func (r reports) next(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the store does not say how its connection is")
		return nil
	}
}

// openWakeable returns a store that wakes, and its reports.
func openWakeable(t *testing.T, client goredis.UniversalClient, prefix string) (*redis.Backend, reports) {
	t.Helper()
	r := make(reports, 1000)
	store, err := redis.New(client, redis.WithPrefix(prefix), redis.WithWakeUps(func(err error) { r <- err }))
	must(t, err)
	return store, r
}

func mustWake(t *testing.T, woken <-chan struct{}) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(20 * time.Second):
		t.Fatal("nobody is woken")
	}
}

func TestSubscriptionThatIsLostIsTakenUpAgain(t *testing.T) {
	s := redistest.New(t)
	admin := dial(t, &goredis.Options{Addr: s.Addr()})
	store, said := openWakeable(t, dial(t, &goredis.Options{Addr: s.Addr()}), "team")
	one, stop := store.Wake("one")
	defer stop()
	other, stopOther := store.Wake("other")
	defer stopOther()
	for range 3 {
		must(t, said.next(t))
		mustWake(t, one) // nobody knows what became free before
		mustWake(t, other)
		must(t, store.Release(t.Context(), acquire(t, store, "one", "h", time.Hour), backend.ExitFinished))
		mustWake(t, one)
		select {
		case <-other:
			t.Error("woken for another work ID")
		default:
		}
		must(t, admin.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
		mustFail(t, said.next(t))
	}
}

// published returns the messages that all channels of a server have got in the course of f.
func published(t *testing.T, s *redistest.Server, f func()) (messages []string) {
	t.Helper()
	client := dial(t, &goredis.Options{Addr: s.Addr()})
	all := client.PSubscribe(t.Context(), "*")
	defer all.Close()
	if _, err := all.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	f()
	must(t, client.Publish(t.Context(), "end", "").Err())
	for {
		m, err := all.ReceiveMessage(t.Context())
		must(t, err)
		if m.Channel == "end" {
			return messages
		}
		messages = append(messages, m.Channel+" "+m.Payload)
	}
}

func TestWhatFreesIsPublishedIfAskedFor(t *testing.T) {
	ctx := t.Context()
	s := redistest.New(t)
	client := dial(t, &goredis.Options{Addr: s.Addr()})
	free := func(store *redis.Backend) func() {
		return func() {
			must(t, store.Release(ctx, acquire(t, store, "release", "h", time.Hour), backend.ExitRetired))
			must(t, store.CheckpointRelease(ctx, acquire(t, store, "final", "h", time.Hour), nil, backend.ExitFinished))
			must(t, store.ReleaseAfter(ctx, acquire(t, store, "now", "h", time.Hour), backend.ExitFinished, 0))
			must(t, store.ReleaseAfter(ctx, acquire(t, store, "later", "h", time.Hour), backend.ExitFinished, time.Hour))
			must(t, store.Forget(ctx, acquire(t, store, "forget", "h", time.Hour)))
			mine := acquire(t, store, "kept", "h", time.Hour)
			must(t, store.Checkpoint(ctx, mine, []byte("s"), time.Hour))
			must(t, store.Renew(ctx, mine, time.Hour))
			mine.HolderID = "nobody"
			mustMatch(t, store.Release(ctx, mine, backend.ExitFinished), backend.ErrFenced)
			mustMatch(t, store.Forget(ctx, mine), backend.ErrFenced)
			must(t, store.Renew(ctx, acquire(t, store, "lapsed", "h", time.Hour), -1))
			if n, err := store.Sweep(ctx, backend.SweepOptions{Retention: -time.Hour, IncludeExpired: true}); err != nil || n != 2 {
				t.Fatal(n, err)
			}
		}
	}
	silent, err := redis.New(client, redis.WithPrefix("silent"))
	must(t, err)
	if messages := published(t, s, free(silent)); len(messages) > 0 {
		t.Errorf("without the option %q are published", messages)
	}
	loud, _ := openWakeable(t, client, "loud")
	want := "release final now forget lapsed"
	got := strings.Join(published(t, s, free(loud)), " ")
	if got = strings.ReplaceAll(got, "{loud}:freed ", ""); got != want {
		t.Errorf("published is %q, want %q", got, want)
	}
}

// An acquisition that is taken back since its caller has left is told of too.
func TestWhatIsUndoneIsPublished(t *testing.T) {
	s := redistest.New(t)
	proxy := redistest.NewProxy(t, s.Addr())
	store, _ := openWakeable(t, dial(t, &goredis.Options{Addr: proxy.Addr()}), "team")
	must(t, store.Forget(t.Context(), acquire(t, store, "w", "h", time.Hour))) // the server knows the script
	messages := published(t, s, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		proxy.Freeze()
		_, err := store.Acquire(ctx, "w", "h", time.Hour)
		proxy.Thaw()
		mustMatch(t, err, context.DeadlineExceeded)
		await(t, "the acquisition to be undone", func() bool {
			free, err := store.Free(t.Context(), []string{"w"})
			return err == nil && len(free) == 1
		})
	})
	if len(messages) == 0 || messages[0] != "{team}:freed w" {
		t.Errorf("published is %q", messages)
	}
}

// The rights that docs/redis.md lists for wake-ups are enough, and without them calls succeed and Check tells.
func TestRightsOfWakeUps(t *testing.T) {
	s := redistest.New(t)
	admin := dial(t, &goredis.Options{Addr: s.Addr()})
	for user, more := range map[string]string{
		"both":    "resetchannels &{team}:freed +publish +subscribe",
		"neither": "resetchannels",
		"channel": "resetchannels &{team}:freed",
		"command": "resetchannels +publish +subscribe",
		"listen":  "resetchannels &{team}:freed +subscribe",
	} {
		must(t, admin.Do(t.Context(), toAny(append([]string{"ACL", "SETUSER", user}, strings.Fields(rights+" "+more)...))...).Err())
		store, said := openWakeable(t, dial(t, &goredis.Options{Addr: s.Addr(), Username: user, Password: "secret"}), "team")
		woken, stop := store.Wake("w")
		if user == "both" {
			must(t, store.Check(t.Context()))
			must(t, said.next(t))
			mustWake(t, woken)
		} else {
			for _, err := range []error{store.Check(t.Context()), said.next(t)} {
				if err == nil || !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), "docs/redis.md") {
					t.Errorf("%s: what is said is %v", user, err)
				}
				if n := strings.Count(fmt.Sprint(err), "redis: "); n != 1 {
					t.Errorf("%s: it is said %d times where: %v", user, n, err)
				}
			}
		}
		must(t, store.Release(t.Context(), acquire(t, store, "w", "h", time.Hour), backend.ExitFinished))
		if user == "both" {
			mustWake(t, woken)
		}
		stop()
	}
}
