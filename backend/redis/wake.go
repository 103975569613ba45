package redis

import (
	"context"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/internal/wake"
)

// WithWakeUps makes the store a [backend.Waker] that tells something: those who wait for a work ID hear of its
// release, on a connection that is subscribed to a channel. There is one for each Backend while somebody waits, and
// for 10 s after; a process that only releases has none.
//
// Whatever frees a work ID then publishes that in the same script, so all processes that share the store
// should have the option. The user needs the channel and two more commands: docs/redis.md lists them. Check
// finds out whether it has them; a publication that is refused is no error of the call, and nobody hears of it.
//
// A connection that is lost, or on which nothing can be heard, which takes up to a minute to notice, is opened again
// after 0.1 to 0.2 s, and where that keeps failing after up to a minute; then all who wait try once. Until then they poll, as they would
// without the option, and no call fails. report, unless it is nil, is told how it stands: nil when something has
// been heard, also again, and otherwise an error each time that hearing ended or could not begin. Its
// calls come one after another, and it should not block. What ends because nobody waits is not told.
func WithWakeUps(report func(err error)) Option {
	return func(b *Backend) {
		b.ear = &wake.Ear{Listen: b.listen, Echo: b.echo}
		if report != nil {
			b.ear.Report = func(err error) { report(failed(context.Background(), "listen", err)) }
		}
	}
}

// Wake implements [backend.Waker]. Without [WithWakeUps] it returns a nil channel.
func (b *Backend) Wake(workID string) (woken <-chan struct{}, stop func()) {
	if b.ear == nil {
		return nil, func() {}
	}
	return b.ear.Wake(workID)
}

// listen is what the store's ear needs of the client, which would by itself connect again without a word, and would
// not notice that the network is silent.
func (b *Backend) listen(ctx context.Context, listening func(), heard func(workID string)) error {
	subscription := b.client.Subscribe(ctx) // to nothing, so that it does not connect yet
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // ends a Receive
	if err := subscription.Subscribe(ctx, b.keys.freed); err != nil {
		return err
	}
	for {
		message, err := subscription.Receive(ctx)
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *goredis.Subscription:
			listening()
		case *goredis.Message:
			heard(m.Payload)
		}
	}
}

// echo publishes the name of no work ID. Its errors, like all of the ear's, get their context when they are reported.
func (b *Backend) echo(ctx context.Context) error {
	err := b.calls.Do(ctx, func(ctx context.Context) error {
		return b.client.Publish(ctx, b.keys.freed, "").Err()
	}, nil, errStuck)
	if err != nil {
		return fmt.Errorf("publish by way of the store: %w", err)
	}
	return nil
}

// checkWakeUps tries what only those can tell who have the right to it.
func (b *Backend) checkWakeUps(ctx context.Context) error {
	subscription := b.client.Subscribe(ctx)
	defer subscription.Close()
	if err := subscription.Subscribe(ctx, b.keys.freed); err != nil {
		return err
	}
	if _, err := subscription.Receive(ctx); err != nil {
		return err
	}
	return b.client.Publish(ctx, b.keys.freed, "").Err()
}
