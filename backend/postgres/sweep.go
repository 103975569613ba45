package postgres

import (
	"context"
	"database/sql"

	"github.com/aetomala/worklease/backend"
)

// sweepBatch is how many rows a statement of a Sweep looks at: a few milliseconds' worth.
const sweepBatch = 1000

// Sweep implements [backend.Backend]. It walks the primary key in batches, each a transaction of its
// own, so that it holds no lock for long and what it has deleted stays deleted when ctx ends. Rows that
// somebody has locked are left for the next sweep.
func (b *Backend) Sweep(ctx context.Context, opts backend.SweepOptions) (int64, error) {
	var deleted int64
	for last := (sql.NullString{Valid: true}); last.Valid; {
		var n int64
		next := last
		err := b.promptly(ctx, "sweep", outsideTx(func(ctx context.Context) error {
			return b.only(ctx, sweepQuery,
				[]any{last.String, sweepBatch, microseconds(opts.Retention), opts.IncludeExpired}, &n, &next)
		}), nil)
		if err != nil {
			return deleted, err
		}
		deleted, last = deleted+n, next
	}
	return deleted, nil
}
