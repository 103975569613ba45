package bench

import (
	"regexp"
	"strconv"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// postgresMeter counts round trips and bytes of log.
type postgresMeter struct {
	proxy   *pgtest.Proxy
	fixture *fixture // not through the proxy
	subject *subject
}

func newPostgresMeter(t *testing.T, s *pgtest.Server) *postgresMeter {
	t.Helper()
	f := newFixture(t, s, "pgx", 1)
	m := &postgresMeter{proxy: pgtest.NewProxy(t, f.dsn), fixture: f}
	store, err := postgres.New(open(t, "pgx", m.proxy.DSN(), 1))
	if err != nil {
		t.Fatal(err)
	}
	m.subject = newSubject(t, store)
	return m
}

func (m *postgresMeter) costs(t *testing.T, c cost) (roundTrips, wal float64) {
	t.Helper()
	n := m.subject.repeat(t, c, func(do func()) {
		before := walPosition(t, m.fixture.db)
		m.proxy.ResetTraffic()
		do()
		roundTrips += float64(m.proxy.Traffic().RoundTrips)
		wal += float64(walPosition(t, m.fixture.db) - before)
	})
	return roundTrips / n, float64(int(wal/n + 0.5))
}

// redisMeter counts scripts and the commands in them.
type redisMeter struct {
	client  *goredis.Client
	subject *subject
}

func newRedisMeter(t *testing.T) *redisMeter {
	t.Helper()
	s := newRedis(t)
	return &redisMeter{client: s.client(t, 1), subject: newSubject(t, s.store(t, 1))}
}

var commandCalls = regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`)

func (m *redisMeter) costs(t *testing.T, c cost) (scripts, commands float64) {
	t.Helper()
	n := m.subject.repeat(t, c, func(do func()) {
		if err := m.client.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		do()
		info, err := m.client.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range commandCalls.FindAllStringSubmatch(info, -1) {
			calls, _ := strconv.ParseFloat(match[2], 64)
			switch match[1] {
			case "evalsha", "eval":
				scripts += calls
			case "info", "config|resetstat", "client|setinfo", "hello":
			default:
				commands += calls
			}
		}
	})
	return scripts / n, commands / n
}
