package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/prompt"
)

// RenewBatch implements [backend.BatchRenewer], in one script: the server does nothing else meanwhile, for some
// milliseconds with 1,000 records. No lease is ever busy.
func (b *Backend) RenewBatch(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error) {
	keys, args := make([]string, len(records)), make([]any, 0, 1+2*len(records))
	args = append(args, micros(ttl))
	for i, record := range records {
		keys[i] = b.keys.lease(record.WorkID)
		args = append(args, record.HolderID, token(record))
	}
	verdicts := make([]error, len(records))
	err := b.promptly(ctx, "renew batch", func(ctx context.Context) error {
		words, err := b.each(ctx, renewScript, keys, args...)
		for i, word := range words {
			if verdicts[i] = verdict(word); verdicts[i] != nil && !prompt.IsAnswer(verdicts[i]) {
				return verdicts[i]
			}
		}
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	return verdicts, nil
}

// lookBatch is how many work IDs a script looks at: about a millisecond's worth.
const lookBatch = 1000

// Free implements [backend.Looker]. It asks for 1,000 work IDs at a time, one time after another.
func (b *Backend) Free(ctx context.Context, workIDs []string) ([]string, error) {
	keys := make([]string, len(workIDs))
	for i, workID := range workIDs {
		keys[i] = b.keys.lease(workID)
	}
	held := make([]bool, len(workIDs))
	err := b.promptly(ctx, "free", func(ctx context.Context) error {
		for from := 0; from < len(keys); from += lookBatch {
			if err := ctx.Err(); err != nil {
				return err
			}
			words, err := b.each(ctx, freeScript, keys[from:min(from+lookBatch, len(keys))])
			if err != nil {
				return err
			}
			for i, word := range words {
				held[from+i] = word != "free"
			}
		}
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	var free []string
	for i, workID := range workIDs {
		if !held[i] {
			free = append(free, workID)
		}
	}
	return free, nil
}

// each runs a script that answers with a word for each key.
func (b *Backend) each(ctx context.Context, s script, keys []string, args ...any) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	words, err := b.run(ctx, s, keys, args...)
	if err == nil && len(words) != len(keys) {
		return nil, fmt.Errorf("%w: %d words for %d keys", errAnswer, len(words), len(keys))
	}
	return words, err
}
