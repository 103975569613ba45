package postgres_test

import (
	"testing"
	"time"

	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// Which ways of sending a statement an old PgBouncer bears; a newer one bears more when told to track
// prepared statements, which it is not here.
func TestCheckAndMigrateThroughAPooler(t *testing.T) {
	t.Parallel()
	plain := []postgres.Option{postgres.WithoutPrepare()}
	for _, row := range []struct {
		driver string
		opts   []postgres.Option
		want   string // "" if it is to pass; a mix-up and a lost statement are a matter of timing
	}{
		{"pq", nil, "a pooler"},
		{"pq", plain, "a pooler"},
		{"pq-binary", nil, "a pooler"},
		{"pq-binary", plain, ""},
		{"pgx", nil, "a pooler loses prepared statements"},
		{"pgx", plain, "a pooler loses prepared statements"},
		{"pgx-cache_describe", plain, ""},
		{"pgx-exec", plain, ""},
		{"pgx-simple_protocol", plain, ""},
	} {
		name := row.driver + " prepared"
		if row.opts != nil {
			name = row.driver
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bounced := pgtest.NewBouncer(t, pgtest.Database(t))
			db := pgtest.Open(t, row.driver, bounced)
			if row.driver != "pgx" { // which is refused, loudly
				migrate(t, db)
				migrate(t, db)
			}
			began := time.Now()
			err := postgres.Check(t.Context(), db, row.opts...)
			if row.want == "" && err != nil {
				t.Error(err)
			} else if row.want != "" {
				has(t, err, row.want, "binary_parameters=yes", "WithoutPrepare")
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}
