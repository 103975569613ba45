package pgtest_test

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/aetomala/worklease/internal/pgtest"
)

func TestBouncerPoolsByTransaction(t *testing.T) {
	t.Parallel()
	// The modes that are right with every version of PgBouncer.
	for _, driver := range []string{"pq-binary", "pgx-exec", "pgx-cache_describe", "pgx-simple_protocol"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.NewBouncer(t, pgtest.Database(t), "default_pool_size = 1")
			db := pgtest.Open(t, driver, dsn)
			// Four clients held open at a time, and one server connection for all of them.
			var mu sync.Mutex
			backends := map[int]bool{}
			var wg sync.WaitGroup
			for i := range 4 {
				conn, err := db.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				wg.Go(func() {
					var pid int
					var echo string
					row := conn.QueryRowContext(context.Background(), "SELECT pg_backend_pid(), $1::text", strconv.Itoa(i))
					if err := row.Scan(&pid, &echo); err != nil || echo != strconv.Itoa(i) {
						t.Errorf("got %q, %v", echo, err)
					}
					mu.Lock()
					defer mu.Unlock()
					backends[pid] = true
				})
			}
			wg.Wait()
			if len(backends) != 1 {
				t.Errorf("the clients saw %d server connections, want 1", len(backends))
			}
		})
	}
}
