package conformance

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/onsi/ginkgo/v2"

	"github.com/aetomala/worklease/backend"
)

const (
	childFault  = "WORKLEASE_CONFORMANCE_FAULT"
	childReport = "WORKLEASE_CONFORMANCE_REPORT"

	noFault = "none"
	// Liberties that the contract gives, no faults.
	bareErrors  = "a held lease does not tell its holder"
	incapable   = "there are no capabilities"
	unsupported = "a wrapper has capabilities that its store lacks"
)

// flawless are what a store may be like and must pass.
var flawless = []string{noFault, bareErrors, incapable, unsupported}

// faults are what a faulty store may have, each with the spec that is meant to catch it and the
// sentence that this spec enforces.
var faults = []struct {
	fault string
	spec  string
	rule  rule
}{
	// Acquire.
	{"a lease is re-entrant", "row states with a lease that I hold Acquire by the same holder ID is refused: held", acquireAgain},
	{"the state is lost at the handover", "checkpoints survive a holder that leaves as abandoned", stateSurvives},
	{"retired is captured as finished", "exits are captured over three holders, the first of which leaves as retired", exitCaptured},
	{"the previous holder is the new one", "exits are captured over three holders, the first of which leaves as finished", exitCaptured},
	{"the declared exit is not cleared", "exits are cleared when a holder follows one that left as finished", exitCleared},
	{"a lease lapses early", "lapsing happens by itself, and not before the ttl has passed", lapseExpiry},
	{"a HeldError names the claimant", "errors of a held lease tell who holds it", errorHeld},
	{"Acquire checks and writes in two steps", "races of 64 claimants for work that has no row have one winner each", raceAcquire},

	// Tokens.
	{"each work ID has tokens of its own", "tokens increase over several work IDs", tokenIncrease},
	{"the token is one more than the highest stored", "tokens increase after Sweep of every row", tokenDeletion},
	{"the token is drawn before the row is locked", "races of 64 claimants never give a later acquisition the smaller token", tokenLocked},

	// The fence.
	{"the token is not compared", "row states with a later tenure of my own holder ID Checkpoint is refused: fenced", checkpointFence},
	{"the holder is not compared", "row states with a lease whose holder ID is not the record's Forget is refused: fenced", forgetFence},
	{"expiry is checked before fencing", "row states with a later tenure of another holder that lapsed Renew is refused: fenced", renewFence},
	{"a fenced error matches two sentinels", "errors match one sentinel each", errorsApart},

	// Checkpoint and Renew.
	{"Checkpoint does not revive", "row states with my lapsed lease Checkpoint succeeds", checkpointOver},
	{"Checkpoint does not extend", "lapsing is put off by Renew and by Checkpoint", lapseExtend},
	{"Checkpoint clears the previous exit", "exits stay the same for the whole tenure after retired", exitSteady},
	{"released is told by the expiry alone", "releases stay when a Checkpoint comes late", checkpointLate},
	{"a refused call writes", "row states with my lease, released as finished Checkpoint is refused: expired", checkpointLate},
	{"Renew revives", "row states with my lapsed lease Renew is refused: expired", renewOver},
	{"a revival checks and writes in two steps", "races of claimants and a Checkpoint for a lapsed lease have one winner each", raceRevive},

	// State.
	{"the caller's slice is kept", "checkpoints do not share the slice that was stored", stateOwned},
	{"the stored slice is returned", "checkpoints do not share the slice that is read", stateFresh},
	{"empty state is stored as such", "checkpoints of empty state are read as nil", stateNone},
	{"no state leaves the state before", "checkpoints of nil state clear the state before", stateNone},
	{"state ends at its first zero byte", "checkpoints keep bytes that other layers treat specially", stateExact},
	{"a lapsed lease cannot be read", "row states with my lapsed lease ReadCheckpoint succeeds", readAny},

	// Release and Forget.
	{"a second Release replaces the first", "releases as abandoned are not changed by a second one", releaseTwice},
	{"a lapsed lease may be released", "row states with my lapsed lease Release is refused: expired", releaseOver},
	{"Release leaves some of the lease", "releases as finished free the lease at once", releaseLive},
	{"expired may be declared", "releases with an invalid mode are refused with a lease that I hold", releaseMode},
	{"fencing is checked before the exit mode", "releases with an invalid mode are refused with a later tenure", releaseMode},
	{"Forget keeps the exits", "exits are wiped by Forget", forgetWipes},
	{"Forget of no row succeeds", "row states with no row Forget is refused: fenced", forgetFence},
	{"Forget panics", "row states with my lapsed lease Forget succeeds", forgetAny},

	// Sweep.
	{"Sweep selects and deletes in two steps", "races of a Sweep, a claimant and a Checkpoint leave the winner its lease", raceSweepHeld},
	{"Sweep takes the finished", "row states with my lease, released as finished Sweep deletes nothing", sweepDeclared},
	{"Sweep takes the held", "row states with a lease that I hold Sweep with IncludeExpired deletes nothing", sweepHeld},
	{"Sweep always takes the expired", "sweeps select among rows that are old enough, IncludeExpired false", sweepSelection},
	{"Sweep overlooks Retention", "sweeps select among rows that are too recent, IncludeExpired true", sweepSelection},
	{"Sweep counts one too many", "row states with my lease, released as retired Sweep deletes the row", sweepRetired},
	{"Sweep overlooks the later expiry", "sweeps count the age of a lapsed lease from its expiry, if that is later", sweepLapsed},
	{"Sweep goes by the expiry", "sweeps count the age of a lapsed lease from its update, if that is later", sweepUpdate},
	{"Renew is an update", "sweeps do not take a Renew for an update", sweepRenewal},

	// IDs and contexts.
	{"work IDs are folded to lower case", "IDs of work are told apart", idsExact},
	{"work IDs lose trailing space", "IDs of work are told apart", idsExact},
	{"work IDs are cut at 1,000 bytes", "IDs of work that differ only in the last of 1,024 bytes are told apart", idsExact},
	{"holder IDs are compared without case", "IDs of holders are told apart", idsExact},
	{"a done context is not looked at", "contexts that are past its deadline stop Sweep", contextDone},
	{"a done context is reported too late", "contexts that are cancelled stop Acquire of a lapsed lease", contextDone},

	// Batches.
	{"a batch ends at its first refusal", "batches have a verdict on each lease, in their order", batchVerdict},
	{"verdicts are in the order of the work IDs", "batches have a verdict on each lease, in their order", batchVerdict},
	{"a batch fails with one of its leases", "batches have a verdict on each lease, in their order", batchVerdict},
	{"a batch sorts the caller's records", "batches have a verdict on each lease, in their order", batchVerdict},
	{"a batch renews the first 100", "batches of 300 leases renew all of them", batchVerdict},
	{"no records are one", "batches of no lease have no verdict", batchNone},
	{"the second of two equal records is busy", "batches have the same verdict on a lease each time that it occurs", batchTwice},
	{"a batch revives", "row states with my lapsed lease RenewBatch is refused: expired", batchVerdict},
	{"a batch compares no token", "batches fence tokens that no store has drawn", tokenZero},
	{"a batch compares holders without case", "batches tell IDs apart", idsExact},
	{"a batch is an update", "batches are no update", sweepRenewal},
	{"two batches deadlock", "batches beside others of the same leases renew each or leave it alone", batchBusy},
	{"a done context does not stop a batch", "contexts that are cancelled stop RenewBatch", contextDone},

	// Looks.
	{"a look misses work without a row", "looks find no row free", lookFree},
	{"a look misses the lapsed", "looks find my lapsed lease free", lookFree},
	{"a look takes declared for free", "looks find my lease, released as retired for later held", lookFree},
	{"a look acquires", "looks find my lapsed lease free", lookFree},
	{"a look sorts", "looks keep to the order of the question", lookOrder},
	{"a look tells once", "looks keep to the order of the question", lookOrder},
	{"a look folds case", "looks tell IDs apart", idsExact},
	{"a done context does not stop a look", "contexts that are past its deadline stop Free", contextDone},

	// Acquiring and reading, saving and releasing.
	{"AcquireRead takes held leases", "acquiring reads of a lease that I hold are refused: held", acquireRead},
	{"AcquireRead reads what was before", "acquiring reads of my lease, released as finished succeed", acquireRead},
	{"AcquireRead returns the stored slice", "acquiring reads return a state of the caller's own", stateFresh},
	{"AcquireRead loses zero bytes", "acquiring reads return the bytes that were stored", stateExact},
	{"AcquireRead reads in a second step", "acquiring reads of 64 claimants have one winner each, which reads what its predecessor left", raceAcquire},
	{"CheckpointRelease does not save", "row states with a lease that I hold CheckpointRelease succeeds", finalStep},
	{"CheckpointRelease does not release", "row states with a lease that I hold CheckpointRelease succeeds", finalStep},
	{"CheckpointRelease refuses the lapsed", "row states with my lapsed lease CheckpointRelease succeeds", finalStep},
	{"CheckpointRelease replaces the first", "final checkpoints as finished are not changed by a second one", finalTwice},
	{"CheckpointRelease saves when it refuses", "row states with my lease, released as finished CheckpointRelease is refused: expired", finalStep},
	{"CheckpointRelease keeps the state for none", "final checkpoints of nil state clear the state before", stateNone},
	{"CheckpointRelease keeps the slice", "final checkpoints do not share the slice that was stored", stateOwned},
	{"CheckpointRelease takes any mode", "final checkpoints with an invalid mode are refused", finalMode},

	// Delayed releases.
	{"the delay is none", "row states with a lease that I hold ReleaseAfter succeeds", delayHeld},
	{"the delay is half", "delayed releases as finished free the lease when they are due, and not before", delayExpiry},
	{"the exit comes with the expiry", "row states with a lease that I hold ReleaseAfter succeeds", delayHeld},
	{"the exit of a delayed release is lost", "delayed releases as retired free the lease when they are due, and not before", delayExpiry},
	{"the delay never outlasts the lease", "delayed releases may outlast the lease", delayExpiry},
	{"a delay of none leaves the lease", "delayed releases of 0s free the lease at once", delayNone},
	{"Sweep takes what is to be free", "delayed releases as retired are swept when they are due, and not before", delaySweep},
	{"ReleaseAfter takes any mode", "delayed releases with an invalid mode are refused", delayMode},

	// Wake-ups.
	{"Release wakes nobody", "wake-ups come after Release", wakeTells},
	{"Forget wakes nobody", "wake-ups come after Forget", wakeTells},
	{"CheckpointRelease wakes nobody", "wake-ups come after CheckpointRelease", wakeTells},
	{"one waiter is told", "wake-ups come to each that waits", wakeAll},
	{"a waiter is told once", "wake-ups come after Release", wakeTells},
	{"stop does not stop", "wake-ups stop", wakeStop},
	{"stop closes the channel", "wake-ups stop", wakeStop},
}

// chancy faults show only if the scheduler lets them: a spec must not fail a store that is merely slow,
// so on a busy machine it may let a fast and faulty one pass. They get several runs to be caught in.
var chancy = []string{
	"a lease lapses early",
	"Acquire checks and writes in two steps",
	"the token is drawn before the row is locked",
	"a revival checks and writes in two steps",
	"Sweep selects and deletes in two steps",
	"Sweep overlooks the later expiry",
	"Renew is an update",
	"a batch is an update",
	"AcquireRead reads in a second step",
	"the delay is half",
	"Sweep takes what is to be free",
}

// TestBite runs the whole suite on stores that break one rule each, and on stores that break none.
// Ginkgo runs one suite in a process, so each store has a process of its own.
func TestBite(t *testing.T) {
	names := slices.Clone(flawless)
	for _, f := range faults {
		names = append(names, f.fault)
	}
	children := startChildren(t, names)

	for _, name := range flawless {
		t.Run(name, func(t *testing.T) {
			if run := children.wait(name); run.err != nil || len(run.failures) > 0 {
				t.Errorf("the suite fails on a store that keeps the contract: %v\n%s", run.err, run.output)
			}
		})
	}
	for _, f := range faults {
		t.Run(f.fault, func(t *testing.T) {
			meant := failure{f.spec, f.rule}
			run := children.wait(f.fault)
			for tries := 1; slices.Contains(chancy, f.fault) && !slices.Contains(run.failures, meant) && tries < 10; tries++ {
				run = children.run(t.Context(), f.fault)
			}
			if !slices.Contains(run.failures, meant) {
				t.Errorf("%q did not catch it; these did:\n%v\n%s", f.spec, run.failures, run.output)
			}
			if !strings.Contains(run.output, string(f.rule)) {
				t.Errorf("the output does not say: %s\n%s", f.rule, run.output)
			}
		})
	}
}

// A failure is a spec that failed, by its full name without the store's, and what it enforces.
type failure struct {
	Spec string
	Rule rule
}

type childRun struct {
	err      error
	failures []failure
	output   string
}

// children run the suite on faulty stores.
type children struct {
	binary, dir string
	results     map[string]chan childRun // by fault
}

// startChildren runs a child for each fault. Children wait for leases to lapse half of the time, hence
// more of them at once than processors.
func startChildren(t *testing.T, faults []string) *children {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &children{binary, t.TempDir(), make(map[string]chan childRun, len(faults))}
	var running sync.WaitGroup
	t.Cleanup(running.Wait) // before the directory is removed
	slots := make(chan struct{}, 2*runtime.NumCPU())
	for _, fault := range faults {
		result := make(chan childRun, 1)
		c.results[fault] = result
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			result <- c.run(t.Context(), fault)
		})
	}
	return c
}

// wait returns what the child that was started for fault found. It does so once.
func (c *children) wait(fault string) childRun { return <-c.results[fault] }

func (c *children) run(ctx context.Context, fault string) childRun {
	report := filepath.Join(c.dir, fault+".json")
	child := exec.CommandContext(ctx, c.binary, "-test.run=^TestFaultyStore$", "-test.timeout=2m", "-ginkgo.no-color")
	child.Env = append(os.Environ(), childFault+"="+fault, childReport+"="+report,
		"GORACE=atexit_sleep_ms=0") // the race detector would let each child linger for a second
	output, err := child.CombinedOutput()
	run := childRun{err: err, output: string(output)}
	encoded, err := os.ReadFile(report)
	if err == nil {
		err = json.Unmarshal(encoded, &run.failures)
	}
	if err != nil {
		run.err = err
	}
	return run
}

// TestFaultyStore is the child's part of TestBite.
func TestFaultyStore(t *testing.T) {
	fault := os.Getenv(childFault)
	if fault == "" {
		return // this is for the child processes of TestBite
	}
	ginkgo.Describe("faulty", RunSuite(func() backend.Backend {
		switch fault {
		case incapable:
			return struct{ backend.Backend }{newFaulty(fault)}
		case unsupported:
			return unsupporting{newFaulty(fault)}
		}
		return newFaulty(fault)
	}))
	ginkgo.ReportAfterSuite("failures", func(report ginkgo.Report) {
		failures := []failure{}
		for _, spec := range report.SpecReports {
			if !spec.Failed() {
				continue
			}
			f := failure{Spec: strings.TrimPrefix(spec.FullText(), "faulty ")}
			for _, entry := range spec.ReportEntries {
				f.Rule = rule(entry.StringRepresentation())
			}
			failures = append(failures, f)
		}
		encoded, err := json.Marshal(failures)
		if err == nil {
			err = os.WriteFile(os.Getenv(childReport), encoded, 0o600)
		}
		if err != nil {
			ginkgo.Fail(err.Error())
		}
	})
	ginkgo.RunSpecs(t, "faulty")
}
