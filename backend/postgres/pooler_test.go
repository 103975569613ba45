package postgres_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// How long clients mix their calls behind a pooler in the case that is the worst; less in others.
const mixing = 10 * time.Second

// pooled are the drivers with the settings that every pooler in transaction mode can do with.
var pooled = []string{"pq-binary", "pgx-exec", "pgx-cache_describe", "pgx-simple_protocol"}

// bouncerFixture is a store that reaches its table through PgBouncer, which pools by transaction; admin
// goes past it.
func bouncerFixture(t testing.TB, driver string, settings []string, opts ...postgres.Option) *fixture {
	t.Helper()
	direct := pgtest.Database(t)
	f := &fixture{admin: pgtest.Open(t, "pgx", direct), opts: opts}
	createTable(t, f.admin)
	f.dsn = pgtest.NewBouncer(t, direct, settings...)
	f.use(t, pgtest.Open(t, driver, f.dsn))
	return f
}

// A pooler that separates parsing from execution runs statements with the parameters of others. None
// may have an effect that its caller did not ask for, and whoever comes off badly is told the cure.
func TestMixedUpStatementsHaveNoEffectBehindAPooler(t *testing.T) {
	for name, c := range map[string]struct {
		driver string
		opts   []postgres.Option
		d      time.Duration
	}{
		"pq":           {"pq", []postgres.Option{postgres.WithoutPrepare()}, mixing},
		"pq prepared":  {"pq", nil, mixing / 4},
		"pgx prepared": {"pgx", nil, mixing / 4},
	} {
		t.Run(name, func(t *testing.T) {
			f := bouncerFixture(t, c.driver, []string{"default_pool_size = 3"}, c.opts...)
			if tally := mix(t, f, c.d); tally.right == 0 || tally.mixedUp == 0 {
				t.Error("the test provokes nothing")
			}
		})
	}
}

// With the cures there are no mix-ups, and nothing is left in a session that the next call needs.
func TestNothingIsMixedUpWithTheCures(t *testing.T) {
	for _, driver := range pooled {
		t.Run(driver, func(t *testing.T) {
			f := bouncerFixture(t, driver, []string{
				"default_pool_size = 3", "server_reset_query = DISCARD ALL", "server_reset_query_always = 1",
			}, postgres.WithoutPrepare())
			if tally := mix(t, f, mixing/10); tally.right == 0 || tally.mixedUp != 0 {
				t.Error("there is an error, or nothing at all")
			}
		})
	}
}

type tally struct {
	right, mixedUp int
	kinds          map[string]int
}

// mix lets clients make random calls for their own work, each comparing every answer, and every row
// in the end, with what it has asked for.
func mix(t *testing.T, f *fixture, d time.Duration) tally {
	const clients = 24
	f.db.SetMaxIdleConns(clients)
	f.admin.SetMaxIdleConns(clients)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		total = tally{kinds: map[string]int{}}
	)
	end := time.Now().Add(d)
	for i := range clients {
		o := &owner{
			t: t, f: f, work: fmt.Sprintf("work-%d", i), holder: fmt.Sprintf("holder-%d", i),
			random: rand.New(rand.NewPCG(1, uint64(i))), tally: tally{kinds: map[string]int{}},
		}
		wg.Go(func() {
			for time.Now().Before(end) && !t.Failed() && !o.lost {
				o.step()
				if o.random.IntN(8) == 0 {
					o.compare()
				}
			}
			o.compare()
			mu.Lock()
			defer mu.Unlock()
			total.right += o.right
			total.mixedUp += o.mixedUp
			for kind, n := range o.kinds {
				total.kinds[kind] += n
			}
		})
	}
	wg.Wait()
	t.Logf("%d calls were right; %d were mixed up: %v", total.right, total.mixedUp, total.kinds)
	return total
}

// owner is a client with what it knows of the row of its work, which nobody else touches.
type owner struct {
	t            *testing.T
	f            *fixture
	work, holder string
	random       *rand.Rand
	tally

	exists           bool
	record           backend.LeaseRecord
	state            string
	exit             backend.ExitMode
	earliest, latest time.Time // between these is the expiry
	prevExit         backend.ExitMode
	prevHolder       string
	seldom           int
	tried            string // the holder ID of the last Acquire
	lost             bool   // that one won, and its second statement was mixed up
}

func (o *owner) held() bool { return o.exists && o.exit == backend.ExitNone }

// step makes one call. The answer is the one that the row calls for, or else a mix-up.
func (o *owner) step() {
	var (
		ctx  = o.t.Context()
		ttl  = time.Hour + time.Duration(o.random.IntN(1e6))*time.Millisecond
		call string
		err  error
		want error
		done func(before, after time.Time)
	)
	moved := func(before, after time.Time) { o.earliest, o.latest = before.Add(ttl), after.Add(ttl) }
	alive := func() error { // what the holder may still do
		switch {
		case !o.exists:
			return backend.ErrFenced
		case o.exit != backend.ExitNone:
			return backend.ErrLeaseExpired
		}
		return nil
	}
	before := time.Now()
	switch o.random.IntN(14) {
	case 0, 1, 8:
		call = "acquire"
		var (
			record backend.LeaseRecord
			found  backend.Checkpoint
		)
		holder, reads := fmt.Sprintf("%s-%d", o.holder, o.random.IntN(100)), o.random.IntN(2) == 0
		if reads {
			record, found, err = o.f.store.AcquireRead(ctx, o.work, holder, ttl)
		} else {
			record, err = o.f.store.Acquire(ctx, o.work, holder, ttl)
		}
		o.tried = holder
		if o.held() {
			want = backend.ErrLeaseHeld
			held, ok := errors.AsType[*backend.HeldError](err)
			if ok && (held.HolderID != o.record.HolderID || o.outside(held.ExpiresAt)) {
				o.t.Errorf("%s is held by %+v, not by %+v", o.work, held, o.record)
			}
		}
		done = func(before, after time.Time) {
			if record.FencingToken <= o.record.FencingToken {
				o.t.Errorf("token %d after %d", record.FencingToken, o.record.FencingToken)
			}
			o.prevExit, o.prevHolder = o.exit, ""
			if o.exists {
				o.prevHolder = o.record.HolderID
			}
			o.exists, o.record, o.exit = true, record, backend.ExitNone
			moved(before, after)
			if reads {
				o.reads(found)
			}
		}
	case 2, 3:
		call = "renew"
		err, want, done = o.f.store.Renew(ctx, o.record, ttl), alive(), moved
	case 4:
		call = "checkpoint"
		state := fmt.Sprintf("%s %d", o.work, o.random.Uint64())
		err, want = o.f.store.Checkpoint(ctx, o.record, []byte(state), ttl), alive()
		done = func(before, after time.Time) { o.state = state; moved(before, after) }
	case 5:
		call = "release"
		mode := backend.ExitFinished + backend.ExitMode(o.random.IntN(3))
		err, want = o.f.store.Release(ctx, o.record, mode), alive()
		done = func(before, after time.Time) { o.exit, o.earliest, o.latest = mode, before, after }
	case 6:
		call = "read"
		var found backend.Checkpoint
		found, err = o.f.store.ReadCheckpoint(ctx, o.record)
		if !o.exists {
			want = backend.ErrFenced
		}
		done = func(_, _ time.Time) { o.reads(found) }
	case 7:
		if o.seldom++; o.seldom%4 != 0 {
			return
		}
		call = "forget"
		if err = o.f.store.Forget(ctx, o.record); !o.exists {
			want = backend.ErrFenced
		}
		done = func(_, _ time.Time) {
			o.exists, o.state, o.exit, o.prevExit, o.prevHolder = false, "", backend.ExitNone, backend.ExitNone, ""
		}
	case 9, 10:
		call = "renew batch"
		nobody := backend.LeaseRecord{WorkID: o.work, HolderID: "nobody", FencingToken: o.record.FencingToken}
		var verdicts []error
		verdicts, err = o.f.store.RenewBatch(ctx, []backend.LeaseRecord{nobody, o.record}, ttl)
		want, done = alive(), moved
		if err == nil {
			err = verdicts[1]
		}
	case 11:
		call = "free"
		var found []string
		found, err = o.f.store.Free(ctx, []string{"nobody's", o.work})
		done = func(_, _ time.Time) {
			if len(found) == 0 || found[0] != "nobody's" || (len(found) == 2) == o.held() {
				o.t.Errorf("free are %q; %s is held: %t", found, o.work, o.held())
			}
		}
	case 12:
		call = "checkpoint and release"
		state, mode := fmt.Sprintf("%s %d", o.work, o.random.Uint64()), backend.ExitFinished+backend.ExitMode(o.random.IntN(3))
		err, want = o.f.store.CheckpointRelease(ctx, o.record, []byte(state), mode), alive()
		done = func(before, after time.Time) { o.state, o.exit, o.earliest, o.latest = state, mode, before, after }
	case 13:
		call = "release after"
		mode := backend.ExitFinished + backend.ExitMode(o.random.IntN(3))
		const delay = time.Millisecond // so that the lease is soon free again
		err, want = o.f.store.ReleaseAfter(ctx, o.record, mode, delay), alive()
		done = func(before, after time.Time) {
			o.exit, o.earliest, o.latest = mode, before.Add(delay), after.Add(delay)
			time.Sleep(time.Until(o.latest))
		}
	}
	switch {
	case want != nil && errors.Is(err, want):
		o.right++
	case want == nil && err == nil:
		o.right++
		done(before, time.Now())
	case err == nil:
		o.t.Errorf("%s of %s gives no error, want %v", call, o.work, want)
	default:
		o.mixUp(call, err)
		if call == "acquire" {
			o.compare() // it may have won
		}
	}
}

// reads compares what was read with what the holder is to find.
func (o *owner) reads(found backend.Checkpoint) {
	if string(found.State) != o.state || found.PrevExit != o.prevExit || found.PrevHolderID != o.prevHolder {
		o.t.Errorf("read %+v of %s, want %q %v %q", found, o.work, o.state, o.prevExit, o.prevHolder)
	}
}

func (o *owner) mixUp(call string, err error) {
	o.mixedUp++
	o.kinds[kind(err)]++
	for _, sentinel := range []error{backend.ErrFenced, backend.ErrLeaseHeld, backend.ErrLeaseExpired} {
		if errors.Is(err, sentinel) {
			o.t.Errorf("%s of %s: a wrong %v", call, o.work, err)
		}
	}
	if text := err.Error(); !strings.Contains(text, "binary_parameters=yes") || !strings.Contains(text, "WithoutPrepare") {
		o.t.Errorf("%s: %q names no cure", call, text)
	}
}

// kind is a short name for an error.
func kind(err error) string {
	if coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return coded.SQLState()
	}
	return "no row, or another's"
}

func (o *owner) outside(expires time.Time) bool {
	const rounding = time.Millisecond // and what little the clocks of a machine differ by
	return expires.Before(o.earliest.Add(-rounding)) || expires.After(o.latest.Add(rounding))
}

// compare compares the row with what has been asked for.
func (o *owner) compare() {
	var (
		token                   uint64
		holder, state, prevExit string
		exit, prevHolder        sql.NullString
		expires                 time.Time
	)
	err := o.f.admin.QueryRow(`SELECT holder_id, fencing_token, expires_at, convert_from(coalesce(checkpoint, ''), 'UTF8'),
		exit_mode, prev_exit_mode, prev_holder_id FROM worklease_leases WHERE work_id = $1`, o.work).
		Scan(&holder, &token, &expires, &state, &exit, &prevExit, &prevHolder)
	if errors.Is(err, sql.ErrNoRows) {
		if o.exists {
			o.t.Errorf("the row of %s has gone", o.work)
		}
		return
	}
	if err != nil {
		o.t.Error(err)
		return
	}
	// An acquisition may need a second statement to be given its token. If that is mixed up, the lease is
	// with nobody for its TTL: the caller asked for it, and has an error.
	if o.lost = !o.held() && holder == o.tried && token > o.record.FencingToken; o.lost {
		return
	}
	declared := backend.ExitNone.String()
	if exit.Valid {
		declared = exit.String
	}
	if !o.exists || holder != o.record.HolderID || token != o.record.FencingToken || state != o.state ||
		declared != o.exit.String() || prevExit != o.prevExit.String() || prevHolder.String != o.prevHolder || o.outside(expires) {
		o.t.Errorf("the row of %s is %s %d %v %q %s %s %s, but its owner knows %+v",
			o.work, holder, token, expires, state, declared, prevExit, prevHolder.String, *o)
	}
}
