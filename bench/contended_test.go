package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/pgtest"
)

// unguarded takes a lease if it is free, by finding out under the row's lock.
const unguarded = `
INSERT INTO worklease_leases AS l (work_id, holder_id, expires_at)
VALUES ($1::text, $2::text, clock_timestamp() + $3::bigint * interval '1 microsecond')
ON CONFLICT (work_id) DO UPDATE SET
  holder_id = EXCLUDED.holder_id,
  fencing_token = EXCLUDED.fencing_token,
  expires_at = EXCLUDED.expires_at,
  exit_mode = NULL,
  prev_exit_mode = coalesce(l.exit_mode, 'expired'),
  prev_holder_id = l.holder_id,
  acquired_at = clock_timestamp(),
  updated_at = clock_timestamp()
WHERE l.expires_at <= clock_timestamp()
RETURNING fencing_token`

func tableContended(t *testing.T, s *pgtest.Server) {
	pollers := pick(64, 4)
	f := newFixture(t, s, "pgx", pollers)
	holder := newHolder(t, f)
	stmt := prepare(t, f.db, unguarded)

	forms := []struct {
		name   string
		try    op
		paused usage // with the holder silent
		renews []time.Duration
	}{
		{name: "worklease", try: func(ctx context.Context, _, _ int) error {
			if _, err := f.store.Acquire(ctx, holder.record.WorkID, "other", ttl); !errors.Is(err, backend.ErrLeaseHeld) {
				return fmt.Errorf("acquiring a held lease: %w", err)
			}
			return nil
		}},
		{name: "upsert without a guard", try: func(ctx context.Context, _, _ int) error {
			var token int64
			err := stmt.QueryRowContext(ctx, holder.record.WorkID, "other", ttl.Microseconds()).Scan(&token)
			if !errors.Is(err, sql.ErrNoRows) {
				return fmt.Errorf("acquiring a held lease: %w", err)
			}
			return nil
		}},
	}

	c := newClock(t, s)
	var variants []variant
	for i := range forms {
		form := &forms[i]
		form.paused = usageOf(t, f, times(1000), form.try)
		polled := throughput(t, c, pollers, form.try)
		variants = append(variants, func(d time.Duration) sample {
			stop := holder.keepRenewing(t)
			rate := polled(d)
			form.renews = append(form.renews, stop()...)
			return rate
		})
	}
	medians := compare(length(time.Second), variants...)

	tab := table{
		title: fmt.Sprintf("%d clients polling for one held lease, fsync on", pollers),
		about: "What an attempt costs, how many there are in a second, and how long the holder's renewals take meanwhile.",
		head:  []string{"Acquire", "log, B", "transaction IDs", "tokens", "attempts", "renewals", "p50", "p99"},
	}
	for i, form := range forms {
		tab.add(form.name, fmt.Sprintf("%.1f", form.paused.wal), fmt.Sprintf("%.2f", form.paused.xids), fmt.Sprintf("%.2f", form.paused.tokens),
			against(medians[i], medians[1]), fmt.Sprint(len(form.renews)), milliseconds(form.renews, 0.5), milliseconds(form.renews, 0.99))
	}
	tab.print(t)
}

func milliseconds(values []time.Duration, q float64) string {
	return fmt.Sprintf("%.1f ms", float64(quantile(values, q).Microseconds())/1000)
}

// usage is what an attempt consumes of the log, the transaction IDs and the tokens.
type usage struct{ wal, xids, tokens float64 }

func usageOf(t *testing.T, f *fixture, attempts int, try op) usage {
	t.Helper()
	measure := func() (u usage) {
		t.Helper()
		err := f.db.QueryRowContext(t.Context(), `
			SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8,
			  pg_snapshot_xmax(pg_current_snapshot())::text::float8, last_value::float8
			FROM worklease_fencing_seq`).Scan(&u.wal, &u.xids, &u.tokens)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	once := func(n int) {
		t.Helper()
		for i := range n {
			if err := try(t.Context(), 0, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	once(1) // the page's first change after a checkpoint, and catalogs read for the first time
	before := measure()
	once(attempts)
	after, n := measure(), float64(attempts)
	return usage{(after.wal - before.wal) / n, (after.xids - before.xids) / n, (after.tokens - before.tokens) / n}
}

// holder has a lease and a connection of its own.
type holder struct {
	*fixture
	record backend.LeaseRecord
}

func newHolder(t *testing.T, beside *fixture) *holder {
	t.Helper()
	h := &holder{fixture: beside.onSameTable(t, "pgx", 1)}
	h.record = h.leases(t, 1, state100)[0]
	return h
}

// keepRenewing renews again and again, until the function that it returns is called, which returns
// how long each took.
func (h *holder) keepRenewing(t *testing.T) (stop func() []time.Duration) {
	t.Helper()
	const pause = 10 * time.Millisecond
	var latencies []time.Duration
	stopping, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			start := time.Now()
			if err := h.store.Renew(t.Context(), h.record, ttl); err != nil {
				t.Error(err)
				return
			}
			latencies = append(latencies, time.Since(start))
			select {
			case <-stopping:
				return
			case <-time.After(pause):
			}
		}
	}()
	return func() []time.Duration {
		close(stopping)
		<-stopped
		return latencies
	}
}
