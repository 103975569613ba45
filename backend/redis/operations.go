package redis

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/prompt"
)

// Acquire implements [backend.Backend]. A held lease costs a read: nothing is written, and no token drawn.
func (b *Backend) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	record, _, err := b.acquire(ctx, "acquire", workID, holderID, ttl, "")
	return record, err
}

// AcquireRead implements [backend.AcquireReader].
func (b *Backend) AcquireRead(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, backend.Checkpoint, error) {
	return b.acquire(ctx, "acquire and read", workID, holderID, ttl, "read")
}

func (b *Backend) acquire(ctx context.Context, op, workID, holderID string, ttl time.Duration, read string) (backend.LeaseRecord, backend.Checkpoint, error) {
	record := backend.LeaseRecord{WorkID: workID, HolderID: holderID}
	var found backend.Checkpoint
	err := b.promptly(ctx, op, func(caller context.Context) error {
		ctx, end := outlasting(caller, prompt.Outlast)
		defer end()
		words, err := b.run(ctx, acquireScript,
			[]string{b.keys.lease(workID), b.keys.open, b.keys.retired, b.keys.tokens},
			workID, holderID, unsent{caller, micros(ttl)}, read)
		if err != nil {
			return err
		}
		switch {
		case len(words) == 4 && words[0] == "held":
			return heldBy(workID, words[1:])
		case len(words) != 6 || words[0] != "ok":
			return fmt.Errorf("%w: %d words", errAnswer, len(words))
		}
		if record.FencingToken, err = strconv.ParseUint(words[1], 10, 64); err != nil {
			return err
		}
		record.ExpiresAt, err = instant(words[2])
		if err == nil {
			found, err = checkpointOf(words[3:])
		}
		if err != nil {
			b.undo(record)
		}
		return err
	}, func() { b.undo(record) })
	if err != nil {
		return backend.LeaseRecord{}, backend.Checkpoint{}, err
	}
	return record, found, nil
}

// heldBy is the error of an Acquire that somebody stands in the way of, of whom words tell the holder ID, the
// expiry and the exit.
func heldBy(workID string, words []string) error {
	held := &backend.HeldError{WorkID: workID, HolderID: words[0]}
	var err error
	if held.ExpiresAt, err = instant(words[1]); err != nil {
		return err
	}
	if held.Exit, err = exitMode(words[2]); err != nil {
		return err
	}
	return held
}

// undo takes back an acquisition that its caller is not, or was not, told of. It is an attempt: if it fails, the
// lease lapses by itself.
func (b *Backend) undo(record backend.LeaseRecord) {
	ctx, cancel := context.WithTimeout(context.Background(), prompt.UndoTimeout)
	defer cancel()
	_, _ = b.answer(ctx, 0, undoScript, b.freeing(record.WorkID), b.identity(record)...)
}

// maxState is the largest state: a string of Redis has no more than 512 MiB.
const maxState = 512 << 20

// Checkpoint implements [backend.Backend]. A state of more than 512 MiB is refused; a large one stops the
// server for everybody while it is copied.
func (b *Backend) Checkpoint(ctx context.Context, record backend.LeaseRecord, state []byte, ttl time.Duration) error {
	return b.change(ctx, "checkpoint", checkpointScript, b.indexed(record.WorkID), record, state, micros(ttl))
}

// Renew implements [backend.Backend].
func (b *Backend) Renew(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
	return b.promptly(ctx, "renew", func(ctx context.Context) error {
		_, err := b.answer(ctx, 0, renewScript, []string{b.keys.lease(record.WorkID)}, micros(ttl), record.HolderID, token(record))
		return err
	}, nil)
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode) error {
	return b.release(ctx, "release", record, mode, nil, 0, "")
}

// ReleaseAfter implements [backend.DelayedReleaser].
func (b *Backend) ReleaseAfter(ctx context.Context, record backend.LeaseRecord, mode backend.ExitMode, delay time.Duration) error {
	return b.release(ctx, "release after", record, mode, nil, delay, "")
}

// CheckpointRelease implements [backend.CheckpointReleaser]. It refuses what Checkpoint refuses.
func (b *Backend) CheckpointRelease(ctx context.Context, record backend.LeaseRecord, state []byte, mode backend.ExitMode) error {
	return b.release(ctx, "checkpoint and release", record, mode, state, 0, "final")
}

func (b *Backend) release(ctx context.Context, op string, record backend.LeaseRecord, mode backend.ExitMode, state []byte, delay time.Duration, kind string) error {
	if !mode.Declarable() {
		return fmt.Errorf("%w: %v", backend.ErrInvalidExitMode, mode)
	}
	return b.change(ctx, op, releaseScript, b.freeing(record.WorkID), record, state, mode.String(), micros(max(delay, 0)), kind)
}

// change runs a script that changes the row of record, and that gets the state last.
func (b *Backend) change(ctx context.Context, op string, s script, keys []string, record backend.LeaseRecord, state []byte, args ...any) error {
	stored := bytes.Clone(state) // a call that its caller has left may still be sending it
	return b.promptly(ctx, op, func(ctx context.Context) error {
		if len(stored) > maxState {
			return fmt.Errorf("a state of %d bytes is more than the limit of %d", len(stored), maxState)
		}
		if stored == nil {
			stored = []byte{}
		}
		_, err := b.answer(ctx, 0, s, keys, append(append(b.identity(record), args...), stored)...)
		return err
	}, nil)
}

// ReadCheckpoint implements [backend.Backend]. It reads from the master, never from a replica.
func (b *Backend) ReadCheckpoint(ctx context.Context, record backend.LeaseRecord) (backend.Checkpoint, error) {
	var found backend.Checkpoint
	err := b.promptly(ctx, "read checkpoint", func(ctx context.Context) error {
		words, err := b.answer(ctx, 3, readScript, []string{b.keys.lease(record.WorkID)}, record.HolderID, token(record))
		if err == nil {
			found, err = checkpointOf(words)
		}
		return err
	}, nil)
	if err != nil {
		return backend.Checkpoint{}, err
	}
	return found, nil
}

// Forget implements [backend.Backend].
func (b *Backend) Forget(ctx context.Context, record backend.LeaseRecord) error {
	return b.promptly(ctx, "forget", func(ctx context.Context) error {
		_, err := b.answer(ctx, 0, forgetScript, b.freeing(record.WorkID), b.identity(record)...)
		return err
	}, nil)
}

// indexed are the keys that scripts get which change where a row is listed.
func (b *Backend) indexed(workID string) []string {
	return []string{b.keys.lease(workID), b.keys.open, b.keys.retired}
}

// freeing are the keys of scripts after which a row may be free. The last, if there is one, is where they say so.
func (b *Backend) freeing(workID string) []string {
	if b.ear == nil {
		return b.indexed(workID)
	}
	return append(b.indexed(workID), b.keys.freed)
}

// identity are the arguments that such scripts begin with.
func (b *Backend) identity(record backend.LeaseRecord) []any {
	return []any{record.WorkID, record.HolderID, token(record)}
}
