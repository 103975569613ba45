// Package backend is the contract between worklease and the stores that keep its leases.
//
// A store implements [Backend] and nothing else has to change: the root package supplies the holder
// ID, the TTL, the renewal and the events, and asks the store for one atomic step at a time. The
// comments on Backend are the specification; package
// github.com/aetomala/worklease/backend/conformance turns them into a suite that any store can run.
//
// # What a store keeps
//
// One row a work ID: the holder, its fencing token, the expiry, the checkpoint, the exit that the
// current or last holder declared (none while the work is held), and the previous holder's exit and
// ID as they were captured when the current holder acquired.
//
// A [LeaseRecord] matches a row when work ID, holder ID and fencing token all equal the stored ones.
// Every call but Acquire and Sweep is conditional on a match. That is the fence: a holder that has
// been superseded matches no more, and can change nothing.
//
// # Optional capabilities
//
// Backend is fixed: it never gains or loses a method. What only some stores can do is a small
// interface of its own, found with [As], so that a wrapper keeps the capabilities of what it wraps. A
// store without any is fully correct, and its callers do what the comment on each says:
// [Transactional], [BatchRenewer], [Looker], [AcquireReader], [CheckpointReleaser], [DelayedReleaser]
// and [Waker]. The rules of Backend hold for the calls of a capability too.
package backend
