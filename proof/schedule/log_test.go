package schedule_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/backend/redis"
)

// run is a row of the log. All instants but the Slot are by the store's clock.
type run struct {
	Task, Node               string
	Slot                     time.Time // or the tick, by the node's clock
	Token                    uint64
	Acquired, Started, Ended time.Time // Ended is zero if it has not
}

// runLog is where the nodes write down their runs.
type runLog interface {
	// begin adds a run, and returns how many of the task's were begun before.
	begin(ctx context.Context, r run) (before int, err error)
	end(ctx context.Context, r run) error
	// runs returns the runs of a task in the order in which they were begun.
	runs(ctx context.Context, task string) ([]run, error)
}

// open opens what the nodes share. It is closed when the process ends.
func open(store, address string) (backend.Backend, runLog, error) {
	switch store {
	case "PostgreSQL":
		db, err := sql.Open("pgx", address)
		if err != nil {
			return nil, nil, err
		}
		b, err := postgres.New(db)
		return b, table{db}, err
	case "Redis":
		addr, prefix, _ := strings.Cut(address, " ")
		client := goredis.NewClient(&goredis.Options{Addr: addr})
		b, err := redis.New(client, redis.WithPrefix(prefix))
		return b, list{client, prefix + ":runs"}, err
	}
	return nil, nil, fmt.Errorf("there is no store %q", store)
}

// table is the log in PostgreSQL.
type table struct{ db *sql.DB }

const createRuns = `CREATE TABLE runs (
	task text, slot timestamptz, node text, token bigint, acquired timestamptz,
	started timestamptz DEFAULT clock_timestamp(), ended timestamptz)`

func (t table) begin(ctx context.Context, r run) (before int, err error) {
	err = t.db.QueryRowContext(ctx, `
		INSERT INTO runs (task, slot, node, token, acquired) VALUES ($1, $2, $3, $4, $5)
		RETURNING (SELECT count(*) FROM runs WHERE task = $1)`,
		r.Task, r.Slot, r.Node, int64(r.Token), r.Acquired).Scan(&before)
	return before, err
}

func (t table) end(ctx context.Context, r run) error {
	result, err := t.db.ExecContext(ctx, `
		UPDATE runs SET ended = clock_timestamp() WHERE task = $1 AND slot = $2 AND token = $3`,
		r.Task, r.Slot, int64(r.Token))
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(fmt.Errorf("%d runs ended", n), err)
	}
	return nil
}

func (t table) runs(ctx context.Context, task string) (runs []run, err error) {
	rows, err := t.db.QueryContext(ctx, `
		SELECT slot, node, token, acquired, started, ended FROM runs WHERE task = $1 ORDER BY started`, task)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		r, ended := run{Task: task}, sql.NullTime{}
		if err := rows.Scan(&r.Slot, &r.Node, &r.Token, &r.Acquired, &r.Started, &ended); err != nil {
			return nil, err
		}
		r.Ended = ended.Time
		runs = append(runs, r)
	}
	return runs, rows.Err()
}

// list is the log in Redis: a list of what has begun and what has ended.
type list struct {
	client *goredis.Client
	key    string
}

// note adds a line to the list, with the server's time. Its result says how many runs of the task were begun before.
const note = `
	local now = redis.call('TIME')
	redis.call('RPUSH', KEYS[1], string.format('%s,%d', ARGV[1], now[1] * 1000000 + now[2]))
	return redis.call('HINCRBY', KEYS[2], ARGV[2], ARGV[3]) - ARGV[3]`

func (l list) note(ctx context.Context, word string, r run, begun int) (before int, err error) {
	line := fmt.Sprintf("%s,%s,%d,%s,%d,%d", word, r.Task, r.Slot.UnixMicro(), r.Node, r.Token, r.Acquired.UnixMicro())
	return l.client.Eval(ctx, note, []string{l.key, l.key + ":begun"}, line, r.Task, begun).Int()
}

func (l list) begin(ctx context.Context, r run) (before int, err error) {
	return l.note(ctx, "begun", r, 1)
}

func (l list) end(ctx context.Context, r run) error {
	_, err := l.note(ctx, "ended", r, 0)
	return err
}

func (l list) runs(ctx context.Context, task string) (runs []run, err error) {
	lines, err := l.client.LRange(ctx, l.key, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		words := strings.Split(line, ",")
		if len(words) != 7 {
			return nil, fmt.Errorf("the log has the line %q", line)
		}
		var n [7]int64
		for _, i := range []int{2, 4, 5, 6} {
			if n[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
				return nil, err
			}
		}
		r := run{Task: words[1], Slot: time.UnixMicro(n[2]), Node: words[3], Token: uint64(n[4]), Acquired: time.UnixMicro(n[5])}
		at := time.UnixMicro(n[6])
		switch {
		case r.Task != task:
		case words[0] == "begun":
			r.Started = at
			runs = append(runs, r)
		default:
			for i := range runs {
				if runs[i].Token == r.Token && runs[i].Slot.Equal(r.Slot) {
					runs[i].Ended = at
				}
			}
		}
	}
	return runs, nil
}
