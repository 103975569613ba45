package redis

import (
	"context"
	"fmt"
	"strconv"

	"github.com/aetomala/worklease/backend"
)

// sweepBatch is how many rows a script of a Sweep looks at: about a millisecond's worth.
const sweepBatch = 500

// Sweep implements [backend.Backend]. It walks the indexes of what was retired and, with IncludeExpired, of what
// has no exit declared, the oldest first and in batches, and scans nothing else. Each row is looked at again
// in the step that deletes it. A lease that is held for longer than the Retention, without a checkpoint, is looked at
// each time. Rows that move in an index while it is walked may be left for the next sweep.
func (b *Backend) Sweep(ctx context.Context, opts backend.SweepOptions) (int64, error) {
	deleted, err := b.sweep(ctx, b.keys.retired, "retired", opts)
	if err == nil && opts.IncludeExpired {
		var n int64
		n, err = b.sweep(ctx, b.keys.open, "none", opts)
		deleted += n
	}
	return deleted, err
}

// sweep walks one index, whose rows have all declared the same exit.
func (b *Backend) sweep(ctx context.Context, index, exit string, opts backend.SweepOptions) (deleted int64, err error) {
	retention, channel := micros(opts.Retention), ""
	if b.ear != nil {
		channel = b.keys.freed
	}
	for skip, more := int64(0), true; more; {
		var n int64
		err := b.promptly(ctx, "sweep", func(ctx context.Context) error {
			workIDs, err := b.run(ctx, candidatesScript, []string{index}, retention, skip, sweepBatch)
			more = len(workIDs) == sweepBatch
			if err != nil || len(workIDs) == 0 {
				return err
			}
			keys, args := []string{index}, []any{retention, exit, channel}
			for _, workID := range workIDs {
				keys, args = append(keys, b.keys.lease(workID)), append(args, workID)
			}
			words, err := b.run(ctx, sweepScript, keys, args...)
			if err != nil {
				return err
			}
			if len(words) != 2 {
				return fmt.Errorf("%w: %d words", errAnswer, len(words))
			}
			if n, err = strconv.ParseInt(words[0], 10, 64); err != nil {
				return err
			}
			gone, err := strconv.ParseInt(words[1], 10, 64)
			skip += int64(len(workIDs)) - gone
			return err
		}, nil)
		if err != nil {
			return deleted, err
		}
		deleted += n
	}
	return deleted, nil
}
