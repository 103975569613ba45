package conformance

import (
	"github.com/onsi/ginkgo/v2"

	"github.com/aetomala/worklease/backend"
)

const work = "work"

// A situation is a row in some state, and what must be seen of it from outside.
type situation struct {
	mine  backend.LeaseRecord // what the operation under test is called with
	owner backend.LeaseRecord // what matches the row; zero if there is none
	held  bool
	later bool               // it is held because its release takes effect later
	reads backend.Checkpoint // what owner reads
	next  backend.Checkpoint // what the next holder finds, after owner has released if it is held
}

func (s situation) row() bool { return s.owner != backend.LeaseRecord{} }

// unchanged checks that the row is in the state s. It uses the row up: a new holder has it then.
func (p *probe) unchanged(s situation) {
	ginkgo.GinkgoHelper()
	if s.row() {
		p.reads(s.owner, s.reads)
	}
	if s.held {
		p.held(work)
	}
	switch {
	case s.later:
		p.forget(s.owner)
		s.next = backend.Checkpoint{}
	case s.held:
		p.release(s.owner, backend.ExitFinished)
	}
	p.finds(work, s.next)
}

func absent(*probe) situation {
	return situation{mine: backend.LeaseRecord{WorkID: work, HolderID: "me", FencingToken: 1}}
}

// live is my tenure after a predecessor's, so that there is a previous exit to get wrong.
func live(p *probe) situation {
	before := p.acquire(work, "before", hour)
	p.checkpoint(before, "state of before", hour)
	p.release(before, backend.ExitAbandoned)

	mine := p.acquire(work, "me", hour)
	p.checkpoint(mine, "my state", hour)
	return situation{
		mine: mine, owner: mine, held: true,
		reads: left("my state", backend.ExitAbandoned, "before"),
		next:  left("my state", backend.ExitFinished, "me"),
	}
}

func lapsed(p *probe) situation {
	s := live(p)
	p.renew(s.mine, over)
	s.held = false
	s.next.PrevExit = backend.ExitExpired
	return s
}

func released(mode backend.ExitMode) func(*probe) situation {
	return func(p *probe) situation {
		s := live(p)
		p.release(s.mine, mode)
		s.held = false
		s.next.PrevExit = mode
		return s
	}
}

func releasedForLater(p *probe) situation {
	s := live(p)
	p.releaseAfter(s.mine, backend.ExitRetired, hour)
	s.later = true
	return s
}

func forgotten(p *probe) situation {
	s := live(p)
	p.forget(s.mine)
	return situation{mine: s.mine}
}

func swept(p *probe) situation {
	s := released(backend.ExitRetired)(p)
	p.sweeps(backend.SweepOptions{Retention: anyAge}, 1)
	return situation{mine: s.mine}
}

// superseded is the row of another tenure, which began when mine had lapsed.
func superseded(holderID string) func(*probe) situation {
	return func(p *probe) situation {
		s := lapsed(p)
		s.owner = p.acquire(work, holderID, hour)
		s.held = true
		s.reads = s.next
		s.next = left("my state", backend.ExitFinished, holderID)
		return s
	}
}

func supersededLapsed(p *probe) situation {
	s := superseded("other")(p)
	p.renew(s.owner, over)
	s.held = false
	s.next.PrevExit = backend.ExitExpired
	return s
}

func supersededReleased(p *probe) situation {
	s := superseded("other")(p)
	p.release(s.owner, backend.ExitFinished)
	s.held = false
	return s
}

// impostor has the right token and the wrong holder ID.
func impostor(p *probe) situation {
	s := live(p)
	s.mine.HolderID = "impostor"
	return s
}

func left(state string, exit backend.ExitMode, holderID string) backend.Checkpoint {
	return backend.Checkpoint{State: []byte(state), PrevExit: exit, PrevHolderID: holderID}
}

// A rowState is one line of the contract's table: a state and what each operation makes of it.
type rowState struct {
	name  string
	setUp func(*probe) situation
	claims
	recordOps
	sweepOps
}

type outcome struct {
	want error
	rule rule
}

// claims are an Acquire for another holder ID, and one for that of the record.
type claims struct{ acquire, again outcome }

type recordOps struct{ checkpoint, renew, release, read, forget outcome }

// sweepOps are a Sweep without and one with IncludeExpired, of rows that are old enough.
type sweepOps struct{ plain, inclusive sweepOutcome }

type sweepOutcome struct {
	deleted bool
	rule    rule
}

var (
	free  = claims{outcome{nil, acquireOver}, outcome{nil, acquireOver}}
	fresh = claims{outcome{nil, acquireFresh}, outcome{nil, acquireFresh}}
	taken = claims{outcome{backend.ErrLeaseHeld, acquireHeld}, outcome{backend.ErrLeaseHeld, acquireAgain}}

	mineLive = recordOps{
		checkpoint: outcome{nil, checkpointLive},
		renew:      outcome{nil, renewLive},
		release:    outcome{nil, releaseLive},
		read:       outcome{nil, readAny},
		forget:     outcome{nil, forgetAny},
	}
	mineLapsed = recordOps{
		checkpoint: outcome{nil, checkpointOver},
		renew:      outcome{backend.ErrLeaseExpired, renewOver},
		release:    outcome{backend.ErrLeaseExpired, releaseOver},
		read:       outcome{nil, readAny},
		forget:     outcome{nil, forgetAny},
	}
	mineReleased = recordOps{
		checkpoint: outcome{backend.ErrLeaseExpired, checkpointLate},
		renew:      outcome{backend.ErrLeaseExpired, renewLate},
		release:    outcome{backend.ErrLeaseExpired, releaseTwice},
		read:       outcome{nil, readAny},
		forget:     outcome{nil, forgetAny},
	}
	notMine = recordOps{
		checkpoint: outcome{backend.ErrFenced, checkpointFence},
		renew:      outcome{backend.ErrFenced, renewFence},
		release:    outcome{backend.ErrFenced, releaseFence},
		read:       outcome{backend.ErrFenced, readFence},
		forget:     outcome{backend.ErrFenced, forgetFence},
	}

	noRow       = sweepOps{sweepOutcome{false, sweepNothing}, sweepOutcome{false, sweepNothing}}
	keptHeld    = sweepOps{sweepOutcome{false, sweepHeld}, sweepOutcome{false, sweepHeld}}
	keptForNext = sweepOps{sweepOutcome{false, sweepDeclared}, sweepOutcome{false, sweepDeclared}}
	sweptAlways = sweepOps{sweepOutcome{true, sweepRetired}, sweepOutcome{true, sweepRetired}}
	sweptOnAsk  = sweepOps{sweepOutcome{false, sweepExpired}, sweepOutcome{true, sweepExpired}}
)

var rowStates = []rowState{
	{"no row", absent, fresh, notMine, noRow},
	{"a lease that I hold", live, taken, mineLive, keptHeld},
	{"my lapsed lease", lapsed, free, mineLapsed, sweptOnAsk},
	{"my lease, released as finished", released(backend.ExitFinished), free, mineReleased, keptForNext},
	{"my lease, released as abandoned", released(backend.ExitAbandoned), free, mineReleased, keptForNext},
	{"my lease, released as retired", released(backend.ExitRetired), free, mineReleased, sweptAlways},
	{"my lease, forgotten", forgotten, fresh, notMine, noRow},
	{"my lease, swept", swept, fresh, notMine, noRow},
	{"my lease, released as retired for later", releasedForLater, taken, mineReleased, keptHeld},
	{"a later tenure of my own holder ID", superseded("me"), taken, notMine, keptHeld},
	{"a later tenure of another holder", superseded("other"), taken, notMine, keptHeld},
	{"a later tenure of another holder that lapsed", supersededLapsed, free, notMine, sweptOnAsk},
	{"a later tenure of another holder that released", supersededReleased, free, notMine, keptForNext},
	{"a lease whose holder ID is not the record's", impostor, taken, notMine, keptHeld},
}
