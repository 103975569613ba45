package redis_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/model"
)

// rowReader reads the rows of a store behind its back.
type rowReader struct {
	client goredis.UniversalClient
	prefix string
}

func (r rowReader) key(name string) string { return "{" + r.prefix + "}:" + name }

func (r rowReader) Rows(ctx context.Context) (map[string]model.Row, error) {
	names, err := r.client.Keys(ctx, r.key("l:*")).Result()
	if err != nil {
		return nil, err
	}
	rows := make(map[string]model.Row)
	for _, name := range names {
		fields, err := r.client.HGetAll(ctx, name).Result()
		if err != nil {
			return nil, err
		}
		if state, has := fields["cp"]; has && state == "" {
			return nil, errors.New(name + " has an empty state instead of none")
		}
		token, err1 := strconv.ParseUint(fields["token"], 10, 64)
		expiry, err2 := strconv.ParseInt(fields["exp"], 10, 64)
		updated, err3 := strconv.ParseInt(fields["upd"], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, err
		}
		rows[strings.TrimPrefix(name, r.key("l:"))] = model.Row{
			HolderID: fields["holder"], Token: token, State: fields["cp"],
			ExpiresAt: time.UnixMicro(expiry), UpdatedAt: time.UnixMicro(updated),
			Exit: exits[fields["exit"]], PrevExit: exits[fields["pexit"]], PrevHolderID: fields["pholder"],
		}
	}
	return rows, r.indexed(ctx, rows)
}

// indexed says which entry of an index is missing or wrong.
func (r rowReader) indexed(ctx context.Context, rows map[string]model.Row) error {
	var errs []error
	for _, index := range []struct {
		name string
		of   backend.ExitMode
	}{{"open", backend.ExitNone}, {"retired", backend.ExitRetired}} {
		entries, err := r.client.ZRangeWithScores(ctx, r.key(index.name), 0, -1).Result()
		if err != nil {
			return err
		}
		scores := make(map[string]int64)
		for _, entry := range entries {
			scores[entry.Member.(string)] = int64(entry.Score)
		}
		for workID, row := range rows {
			if row.Exit != index.of {
				continue
			}
			if score, ok := scores[workID]; !ok || score != row.UpdatedAt.UnixMicro() {
				errs = append(errs, errors.New(workID+" is not in "+index.name+" as it must be"))
			}
			delete(scores, workID)
		}
		for workID := range scores {
			errs = append(errs, errors.New(workID+" is in "+index.name+" for no reason"))
		}
	}
	return errors.Join(errs...)
}

var exits = map[string]backend.ExitMode{
	"": backend.ExitNone, "none": backend.ExitNone, "finished": backend.ExitFinished,
	"abandoned": backend.ExitAbandoned, "retired": backend.ExitRetired, "expired": backend.ExitExpired,
}

// moving is a server whose clock stands still until it is moved.
type moving struct {
	mini *miniredis.Miniredis
	now  time.Time
}

func (m *moving) Now(context.Context) (time.Time, error) { return m.now, nil }

func (m *moving) Advance(_ context.Context, d time.Duration) error {
	m.now = m.now.Add(d).Round(time.Microsecond)
	m.mini.SetTime(m.now)
	return nil
}

// going is a server whose clock nobody moves. Instead of that, the rows move.
type going struct {
	backend.Backend
	rowReader
	ahead time.Duration // by how much the clock would be ahead had it been moved
}

var shift = goredis.NewScript(`
	for _, row in ipairs(redis.call('KEYS', ARGV[1])) do
		for _, field in ipairs({'exp', 'upd'}) do
			redis.call('HSET', row, field, string.format('%.0f', tonumber(redis.call('HGET', row, field)) - tonumber(ARGV[2])))
		end
	end
	for _, index in ipairs(KEYS) do
		for _, workID in ipairs(redis.call('ZRANGE', index, 0, -1)) do
			redis.call('ZINCRBY', index, -tonumber(ARGV[2]), workID)
		end
	end
	return 'ok'`)

func (g *going) Now(ctx context.Context) (time.Time, error) {
	now, err := g.client.Time(ctx).Result()
	return now.Add(g.ahead), err
}

func (g *going) Advance(ctx context.Context, d time.Duration) error {
	d = d.Truncate(time.Microsecond)
	g.ahead += d
	return shift.Run(ctx, g.client, []string{g.key("open"), g.key("retired")}, g.key("l:*"), d.Microseconds()).Err()
}

func (g *going) Rows(ctx context.Context) (map[string]model.Row, error) {
	rows, err := g.rowReader.Rows(ctx)
	for workID, row := range rows {
		row.ExpiresAt, row.UpdatedAt = row.ExpiresAt.Add(g.ahead), row.UpdatedAt.Add(g.ahead)
		rows[workID] = row
	}
	return rows, err
}

// Acquire translates what the store says of instants.
func (g *going) Acquire(ctx context.Context, workID, holderID string, ttl time.Duration) (backend.LeaseRecord, error) {
	record, err := g.Backend.Acquire(ctx, workID, holderID, ttl)
	if held, ok := errors.AsType[*backend.HeldError](err); ok {
		translated := *held
		translated.ExpiresAt = held.ExpiresAt.Add(g.ahead)
		return record, &translated
	}
	if err == nil {
		record.ExpiresAt = record.ExpiresAt.Add(g.ahead)
	}
	return record, err
}

// walk compares a store with the model over sequences of random steps.
func walk(t *testing.T, shortest time.Duration, begin func(t *testing.T) model.Config) {
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(1, seed))
		runner := model.NewRunner(begin(t))
		for range 50 {
			op := model.Generate(runner.Model(), random.IntN)
			if op.TTL > 0 {
				op.TTL = max(op.TTL, shortest)
			}
			if err := runner.Step(t.Context(), op); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, runner.Trace())
			}
		}
	}
}

// On a clock that stands still all instants are compared exactly, so also the very one of an expiry.
func TestAsTheModelWithAClockThatIsMoved(t *testing.T) {
	client, mini := miniature(t)
	walk(t, 0, func(t *testing.T) model.Config {
		clock := &moving{mini: mini, now: time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)}
		mini.SetTime(clock.now)
		store, prefix := open(t, client)
		return model.Config{Backend: store, Clock: clock, Rows: rowReader{client, prefix}, Resolution: time.Microsecond}
	})
}

func TestAsTheModelWithTheServersClock(t *testing.T) {
	client := server(t)
	walk(t, time.Minute, func(t *testing.T) model.Config {
		store, prefix := open(t, client)
		world := &going{Backend: store, rowReader: rowReader{client, prefix}}
		return model.Config{Backend: world, Clock: world, Rows: world, Resolution: time.Microsecond}
	})
}
