package proof

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/model"
	"github.com/anishathalye/porcupine"
)

// answer is what came of a call: its class of error, and what it returned.
type answer struct {
	err     error
	token   uint64 // of Acquire
	heldBy  string // of ErrLeaseHeld; empty if the store did not say
	found   backend.Checkpoint
	unknown bool // the call failed, and may have taken effect for all that is known
	undone  bool // it is not the call itself, but that the store took back what came of it
}

// state is that of one work ID. Leases are long enough to outlive the history, or over from the beginning.
// So time plays no part, and stands still.
type state struct {
	row  model.Row
	last uint64 // the largest token that was given out
}

// untold is the token of an acquisition whose answer was lost.
const untold = math.MaxUint64

// oneWork is the sequential specification of the operations on one work ID.
var oneWork = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, input, output any) (bool, any) {
		return step(before.(state), input.(model.Op), output.(answer))
	},
	DescribeOperation: func(input, output any) string { return describe(input.(model.Op), output.(answer)) },
}

func step(s state, op model.Op, got answer) (bool, any) {
	var (
		record = op.Record()
		next   model.Row
		want   answer
	)
	if got.undone {
		return true, state{undo(s.row, op.HolderID), s.last}
	}
	switch op.Kind {
	case model.Acquire:
		token := got.token
		if got.unknown || got.err != nil {
			token = untold
		}
		next, want.err = s.row.Acquire(epoch, op.HolderID, token, op.TTL)
		if want.err != nil && got.heldBy != "" {
			want.heldBy = s.row.HolderID
		}
		// A first claimant whose TTL is not positive may hold a token from before a tenure that came and was
		// forgotten meanwhile: PostgreSQL draws no second one for a lease that was over from the beginning.
		drawnEarly := !s.row.Exists() && op.TTL <= 0
		if got.err == nil && !got.unknown && got.token <= s.last && !drawnEarly {
			return false, s
		}
	case model.Checkpoint:
		next, want.err = s.row.Checkpoint(epoch, record, string(op.State), op.TTL)
	case model.Renew:
		next, want.err = s.row.Renew(epoch, record, op.TTL)
	case model.Release:
		next, want.err = s.row.Release(epoch, record, op.Mode)
	case model.ReadCheckpoint:
		next = s.row
		want.found, want.err = s.row.ReadCheckpoint(record)
	case model.Forget:
		next, want.err = s.row.Forget(record)
	}
	if got.unknown { // it need not have taken effect: then it comes at the end, where nobody sees it
		return true, state{next, s.last}
	}
	ok := errors.Is(got.err, want.err) && got.heldBy == want.heldBy &&
		bytes.Equal(got.found.State, want.found.State) &&
		got.found.PrevExit == want.found.PrevExit && got.found.PrevHolderID == want.found.PrevHolderID
	return ok, state{next, max(s.last, got.token)}
}

// undo is what a store may do about an acquisition that its caller has not been told of, at any time
// afterwards: the next one finds what this one found. Holder IDs are of one call each.
func undo(row model.Row, holderID string) model.Row {
	switch {
	case !row.Exists() || row.HolderID != holderID:
		return row
	case row.PrevExit == backend.ExitNone:
		return model.Row{}
	}
	row.HolderID, row.ExpiresAt = row.PrevHolderID, epoch
	row.Exit = row.PrevExit
	if row.Exit == backend.ExitExpired {
		row.Exit = backend.ExitNone
	}
	return row
}

func describe(op model.Op, got answer) string {
	switch {
	case got.undone:
		return fmt.Sprintf("%#v: perhaps taken back", op)
	case got.unknown:
		return fmt.Sprintf("%#v: unknown", op)
	case got.err != nil:
		return fmt.Sprintf("%#v: %v %s", op, got.err, got.heldBy)
	default:
		return fmt.Sprintf("%#v: ok, token %d, %q %v %q", op, got.token, got.found.State, got.found.PrevExit, got.found.PrevHolderID)
	}
}

// history is what concurrent clients did and were told.
type history struct {
	store backend.Backend
	begun time.Time
	works []string
	arena

	mu    sync.Mutex
	ops   []porcupine.Operation
	given map[int][]backend.LeaseRecord // by client, who use also the records of others
	odd   []error                       // failures that only a fault explains
}

// record lets clients loose on a store and returns when they are done.
func record(ctx context.Context, a arena, prefix string, random *rand.Rand) *history {
	h := &history{arena: a, store: a.fresh(), begun: time.Now(), given: make(map[int][]backend.LeaseRecord)}
	clients := 8 + random.IntN(25)
	for i := range clients / 4 {
		h.works = append(h.works, fmt.Sprintf("%s-%d", prefix, i))
	}
	var (
		each     = 6 + random.IntN(8)
		together = make(chan struct{})
		done     sync.WaitGroup
	)
	for i := range clients {
		// Two work IDs for each client are eight to eleven clients for each work ID: calls that were all
		// made at once can come in any order, and the search for the right one gets long.
		c := &client{
			history: h, id: i, random: rand.New(rand.NewPCG(random.Uint64(), uint64(i))),
			uses: []string{h.works[i%len(h.works)], h.works[(i+1)%len(h.works)]},
		}
		done.Go(func() {
			<-together
			for n := range each {
				c.act(ctx, n)
			}
		})
	}
	close(together)
	done.Wait()
	return h
}

// client is one of several who use a store at the same time.
type client struct {
	*history
	id     int
	random *rand.Rand
	uses   []string // work IDs
	mine   backend.LeaseRecord
}

// act makes the client's n-th call.
func (c *client) act(ctx context.Context, n int) {
	if c.fault != nil && c.random.IntN(12) == 0 {
		c.fault()
	}
	record := c.mine
	if record == (backend.LeaseRecord{}) || c.random.IntN(6) == 0 {
		record = c.anybodys()
	}
	if record == (backend.LeaseRecord{}) || c.random.IntN(3) == 0 {
		ttl := c.ttl(2)
		if c.resends {
			ttl = time.Hour
		}
		c.call(ctx, model.Op{
			Kind:     model.Acquire,
			WorkID:   c.uses[c.random.IntN(len(c.uses))],
			HolderID: fmt.Sprintf("call %d of client %d", n, c.id),
			TTL:      ttl,
		})
		return
	}
	op := model.Op{WorkID: record.WorkID, HolderID: record.HolderID, Token: record.FencingToken}
	switch c.random.IntN(10) {
	case 0, 1, 2:
		op.Kind, op.TTL = model.Checkpoint, c.ttl(5)
		op.State = fmt.Appendf(nil, "call %d of client %d", n, c.id)
	case 3, 4:
		op.Kind, op.TTL = model.Renew, c.ttl(5)
	case 5, 6:
		op.Kind, op.Mode = model.Release, backend.ExitFinished+backend.ExitMode(c.random.IntN(3))
	case 7, 8:
		op.Kind = model.ReadCheckpoint
	case 9:
		op.Kind = model.Forget
	}
	c.call(ctx, op)
}

// ttl is long, or one time in n over.
func (c *client) ttl(n int) time.Duration {
	if c.random.IntN(n) == 0 {
		return -time.Duration(c.random.IntN(2)) * time.Second
	}
	return time.Hour
}

// anybodys returns a record of this client, or of another if they use those, over or not. It is of a work ID
// that this client uses.
func (c *client) anybodys() backend.LeaseRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	given := c.given[c.id]
	if !c.resends {
		given = slices.Concat(slices.Collect(maps.Values(c.given))...)
	}
	given = slices.DeleteFunc(slices.Clone(given), func(r backend.LeaseRecord) bool { return !slices.Contains(c.uses, r.WorkID) })
	if len(given) == 0 {
		return backend.LeaseRecord{}
	}
	return given[c.random.IntN(len(given))]
}

// call makes a call and writes it down.
func (c *client) call(ctx context.Context, op model.Op) {
	var (
		got      answer
		err      error
		acquired backend.LeaseRecord
		record   = op.Record()
		invoked  = time.Since(c.begun)
	)
	switch op.Kind {
	case model.Acquire:
		acquired, err = c.store.Acquire(ctx, op.WorkID, op.HolderID, op.TTL)
		got.token = acquired.FencingToken
	case model.Checkpoint:
		err = c.store.Checkpoint(ctx, record, op.State, op.TTL)
	case model.Renew:
		err = c.store.Renew(ctx, record, op.TTL)
	case model.Release:
		err = c.store.Release(ctx, record, op.Mode)
	case model.ReadCheckpoint:
		got.found, err = c.store.ReadCheckpoint(ctx, record)
	case model.Forget:
		err = c.store.Forget(ctx, record)
	}
	returned := int64(time.Since(c.begun))

	class, known := model.Class(err)
	got.err = class
	if held, ok := asHeld(err); ok {
		got.heldBy = held.HolderID
	}
	if !known {
		got, returned = answer{unknown: true}, math.MaxInt64
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// A store may find that a Renew or a Release changed nothing, and a moment later that it could have:
	// another call with the same record has revived the lease. It then says so, and is not certain.
	if !known && c.fault == nil && op.Kind != model.Renew && op.Kind != model.Release {
		c.odd = append(c.odd, fmt.Errorf("%#v: %w", op, err))
	}
	if err == nil && op.Kind == model.Acquire {
		c.mine = acquired
		c.given[c.id] = append(c.given[c.id], acquired)
	}
	c.ops = append(c.ops, porcupine.Operation{ClientId: c.id, Input: op, Call: int64(invoked), Output: got, Return: returned})
}

// unknown counts the calls whose outcome is not known.
func (h *history) unknown() (n int) {
	for _, op := range h.ops {
		if op.Output.(answer).unknown {
			n++
		}
	}
	return n
}

// check returns an error unless there is an order of the calls on each work ID in which every answer is
// right, and tokens rise over all work IDs.
func (h *history) check() error {
	errs := slices.Clone(h.odd)
	for _, work := range h.works {
		var ops []porcupine.Operation
		for _, op := range h.ops {
			if op.Input.(model.Op).WorkID != work {
				continue
			}
			ops = append(ops, op)
			if op.Output.(answer).unknown && op.Input.(model.Op).Kind == model.Acquire {
				op.Output = answer{unknown: true, undone: true}
				ops = append(ops, op)
			}
		}
		if result := search(ops); result != porcupine.Ok {
			errs = append(errs, fmt.Errorf("no order explains the calls on %q (%v):\n%s", work, result, listed(ops)))
		}
	}
	return errors.Join(append(errs, h.checkTokens())...)
}

// search looks for an order. Calls of unknown outcome make that long, and need not have taken effect: an
// order without them is one. So it is looked for without any, then with those that left a trace, and only
// then with all.
func search(ops []porcupine.Operation) porcupine.CheckResult {
	without := func(drop func(model.Op) bool) []porcupine.Operation {
		return slices.DeleteFunc(slices.Clone(ops), func(op porcupine.Operation) bool {
			return op.Output.(answer).unknown && drop(op.Input.(model.Op))
		})
	}
	seen := make(map[string]bool) // holder IDs and states, which are of one call each
	for _, op := range ops {
		got := op.Output.(answer)
		seen[got.heldBy], seen[got.found.PrevHolderID], seen[string(got.found.State)] = true, true, true
	}
	for _, some := range [][]porcupine.Operation{
		without(func(model.Op) bool { return true }),
		without(func(op model.Op) bool {
			return op.Kind == model.Acquire && !seen[op.HolderID] || op.Kind == model.ReadCheckpoint ||
				op.Kind == model.Checkpoint && !seen[string(op.State)]
		}),
	} {
		if len(some) < len(ops) && porcupine.CheckOperationsTimeout(oneWork, some, 10*time.Second) == porcupine.Ok {
			return porcupine.Ok
		}
	}
	return porcupine.CheckOperationsTimeout(oneWork, ops, time.Minute)
}

// checkTokens returns an error if a token is not above one that was known before its call began.
func (h *history) checkTokens() error {
	var begun, ended []porcupine.Operation
	for _, op := range h.ops {
		if op.Output.(answer).token > 0 {
			begun = append(begun, op)
		}
	}
	ended = slices.SortedFunc(slices.Values(begun), func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	slices.SortFunc(begun, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var largest uint64
	for _, op := range begun {
		for len(ended) > 0 && ended[0].Return < op.Call {
			largest, ended = max(largest, ended[0].Output.(answer).token), ended[1:]
		}
		if token := op.Output.(answer).token; token <= largest {
			return fmt.Errorf("an acquisition got the token %d after %d was given out:\n%s", token, largest, listed(begun))
		}
	}
	return nil
}

func listed(ops []porcupine.Operation) string {
	ops = slices.SortedFunc(slices.Values(ops), func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprintf(&b, "client %2d, %9d to %9d: %s\n", op.ClientId, op.Call/1000, op.Return/1000, describe(op.Input.(model.Op), op.Output.(answer)))
	}
	return b.String()
}
