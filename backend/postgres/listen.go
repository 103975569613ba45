package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/aetomala/worklease/internal/wake"
)

// Listener hears what the server notifies, on a connection of its own. Packages pgxlisten and pqlisten,
// which are modules of their own beside this package, have one for each driver.
type Listener interface {
	// Listen opens a connection to the database that the store is in, sends LISTEN for channel on it, and
	// returns an error when the connection is lost or could not be had, which it does not try again: that
	// is the store's. When ctx ends, Listen ends the connection and returns soon after, also if the network
	// is silent. It closes what it has opened before it returns.
	//
	// The channel needs no quotes. listening is called once the server has answered the LISTEN, and then
	// heard with the payload of each notification. Neither blocks, nor is called after Listen has returned.
	// No more than one Listen of a store runs at a time, except for a moment in which an older one ends.
	Listen(ctx context.Context, channel string, listening func(), heard func(payload string)) error
}

// WithListener makes the store a [backend.Waker] that tells something: those who wait for a work ID hear of its
// release when it is committed, on a connection that l opens. There is one for each Backend while somebody
// waits, and for 10 s after; a process that only releases has none. l must lead to the server itself, since
// a pooler in transaction mode loses what is notified, and to the primary, since a standby notifies nobody.
//
// Whatever frees a work ID then notifies in the same statement, so all processes that share the table
// should have the option. It makes the commits of such statements wait for each other: see
// docs/postgres.md for what that costs.
//
// A connection that is lost, or on which nothing can be heard, which takes up to a minute to notice, is opened
// again after 0.1 to 0.2 s, and where that keeps failing after up to a minute; then all who wait try once.
// Until then they poll, as they would without the option, and no call fails. report, unless it is nil, is told
// how it stands: nil when listening has been seen to work, also again, and otherwise an error each time that it
// ended or could not begin. Its calls come one after another, and it should not block: until it returns, a lost
// connection is not opened again. What ends because nobody waits is not told.
//
// A nil l is ignored.
func WithListener(l Listener, report func(err error)) Option {
	return func(b *Backend) {
		if l == nil {
			return
		}
		b.ear = &wake.Ear{Listen: b.listen(l), Echo: b.notify}
		if report != nil {
			b.ear.Report = func(err error) { report(failed(context.Background(), "listen", err)) }
		}
	}
}

// Wake implements [backend.Waker]. Without [WithListener] it returns a nil channel.
func (b *Backend) Wake(workID string) (woken <-chan struct{}, stop func()) {
	if b.ear == nil {
		return nil, func() {}
	}
	return b.ear.Wake(payload(workID))
}

// payload is what is notified of a work ID. Should two have the same, one is told in vain.
func payload(workID string) string {
	sum := sha256.Sum256([]byte(workID))
	return hex.EncodeToString(sum[:16])
}

// channelTime bounds the question for the name of the channel.
const channelTime = 10 * time.Second

// listen is the Listen of the store's ear, on the channel of the table.
func (b *Backend) listen(l Listener) func(ctx context.Context, listening func(), heard func(payload string)) error {
	return func(ctx context.Context, listening func(), heard func(payload string)) error {
		name, err := b.channelName(ctx)
		if err != nil {
			return fmt.Errorf("ask the store for the channel: %w", err)
		}
		return l.Listen(ctx, name, listening, heard)
	}
}

func (b *Backend) channelName(ctx context.Context) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, channelTime)
	defer cancel()
	if err = b.forEar(ctx, channelQuery, &name); err != nil {
		return "", err // name may yet be written
	}
	return name, nil
}

// notify notifies of nothing.
func (b *Backend) notify(ctx context.Context) error {
	if err := b.forEar(ctx, echoQuery); err != nil {
		return fmt.Errorf("notify by way of the store: %w", err)
	}
	return nil
}

// forEar sends a query for the ear. Its errors, like all of the ear's, get their context when they are reported.
func (b *Backend) forEar(ctx context.Context, q query, dest ...any) error {
	return b.calls.Do(ctx, func(ctx context.Context) error {
		return b.cured(ctx, q.name, b.only(ctx, q, nil, dest...))
	}, nil, errStuck)
}
