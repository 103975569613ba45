package bench

import (
	"errors"
	"fmt"
	"testing"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// tableRoundTrips counts between the driver and the server, on a connection that has done all of it
// before.
func tableRoundTrips(t *testing.T, s *pgtest.Server) {
	tab := table{
		title: "Round trips of an operation",
		about: "In brackets: statements that the server had to parse.",
		head:  []string{"operation"},
	}
	var names []string
	cells := make(map[string][]string)
	for _, way := range []struct {
		driver, label string
		opts          []postgres.Option
	}{
		{"pgx", "pgx", nil},
		{"pq", "lib/pq", nil},
		{"pgx", "pgx, WithoutPrepare", []postgres.Option{postgres.WithoutPrepare()}},
		{"pgx-exec", "pgx, exec, WithoutPrepare", []postgres.Option{postgres.WithoutPrepare()}},
		{"pq", "lib/pq, WithoutPrepare", []postgres.Option{postgres.WithoutPrepare()}},
		{"pq-binary", "lib/pq, binary_parameters, WithoutPrepare", []postgres.Option{postgres.WithoutPrepare()}},
	} {
		tab.head = append(tab.head, way.label)
		names = nil
		countRoundTrips(t, s, way.driver, way.opts, func(name string, traffic pgtest.Traffic) {
			names = append(names, name)
			cells[name] = append(cells[name], fmt.Sprintf("%d (%d)", traffic.RoundTrips, traffic.Count('P')))
		})
	}
	for _, name := range names {
		tab.add(append([]string{name}, cells[name]...)...)
	}
	tab.print(t)
}

// countRoundTrips does every operation once to warm the connection up, and then once more.
func countRoundTrips(t *testing.T, s *pgtest.Server, driver string, opts []postgres.Option, report func(string, pgtest.Traffic)) {
	t.Helper()
	dsn := s.Schema(t)
	proxy := pgtest.NewProxy(t, dsn)
	db := open(t, driver, proxy.DSN(), 1)
	execute(t, db, postgres.Schema)
	store, err := postgres.New(db, opts...)
	if err != nil {
		t.Fatal(err)
	}
	for warm := range 2 {
		var record, stale backend.LeaseRecord
		for _, step := range []struct {
			name string
			do   func() error
			want error
		}{
			{"Acquire, free", func() (err error) { record, err = store.Acquire(t.Context(), "w", "holder", ttl); return err }, nil},
			{"Acquire, held", func() error { _, err := store.Acquire(t.Context(), "w", "other", ttl); return err }, backend.ErrLeaseHeld},
			{"Renew", func() error { return store.Renew(t.Context(), record, ttl) }, nil},
			{"Renew, superseded", func() error {
				stale = record
				stale.FencingToken--
				return store.Renew(t.Context(), stale, ttl)
			}, backend.ErrFenced},
			{"Checkpoint", func() error { return store.Checkpoint(t.Context(), record, state100, ttl) }, nil},
			{"ReadCheckpoint", func() error { _, err := store.ReadCheckpoint(t.Context(), record); return err }, nil},
			{"Release", func() error { return store.Release(t.Context(), record, backend.ExitFinished) }, nil},
			{"Forget", func() error { return store.Forget(t.Context(), record) }, nil},
		} {
			proxy.ResetTraffic()
			if err := step.do(); !errors.Is(err, step.want) {
				t.Fatalf("%s: error %v, want %v", step.name, err, step.want)
			}
			if warm == 1 {
				report(step.name, proxy.Traffic())
			}
		}
	}
}
