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
// somebody has locked are left for the next sweep. A sweep that is cut short is taken up by the next
// one of this Backend where it ended: many short ones get as far as a long one, also where the first
// million rows are none that a sweep deletes.
func (b *Backend) Sweep(ctx context.Context, opts backend.SweepOptions) (int64, error) {
	start := ""
	if last := b.sweptTo.Load(); last != nil {
		start = *last
	}
	deleted, cut, err := b.sweep(ctx, opts, start, "")
	if err == nil && start != "" {
		var n int64
		n, cut, err = b.sweep(ctx, opts, "", start)
		deleted += n
	}
	b.sweptTo.Store(&cut)
	return deleted, err
}

// sweep sweeps the rows behind one work ID as far as another, or to the end if that is empty. If it
// fails, it returns the work ID that it has come to.
func (b *Backend) sweep(ctx context.Context, opts backend.SweepOptions, from, to string) (deleted int64, cut string, err error) {
	for next := (sql.NullString{String: from, Valid: true}); next.Valid; {
		var n int64
		last := next.String
		err := b.promptly(ctx, "sweep", outsideTx(func(ctx context.Context) error {
			return certain(known(b.tell(ctx, sweepQuery,
				[]any{last, sweepBatch, microseconds(opts.Retention), opts.IncludeExpired, to}, &n, &next)))
		}), nil)
		if err != nil {
			return deleted, last, err
		}
		deleted += n
	}
	return deleted, "", nil
}
