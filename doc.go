// Package worklease leases named work and hands the last holder's checkpoint to the next one.
//
// A lease answers who works on something now. When worker A dies half-way, worker B acquires the lease
// once its TTL has passed, reads A's last checkpoint and how A left, and carries on from there. If A
// was not dead but slow, everything it still tries to write is refused: each tenure has a fencing token,
// and the store accepts writes of the current one only.
//
// # A tenure
//
//	token, err := lease.Acquire(ctx, "report-2026")        // ErrLeaseHeld: somebody else works on it
//	prior, err := lease.ReadCheckpoint(ctx, token)          // the state saved last, and how that holder left
//	renewCtx, stopRenewal := lease.StartRenewal(ctx, token) // work under renewCtx
//	err = lease.Checkpoint(renewCtx, token, state)          // as often as losing the work between two hurts
//	stopRenewal()
//	err = lease.Release(ctx, token, worklease.ExitFinished) // the next Acquire succeeds at once
//
// A Release under a context that has ended does nothing, and the work waits for the TTL: mind the way out
// of a shutdown. Package worker does these steps in this order, with everything that can go wrong between them;
// package leader does so again and again, for one process that leads, and package pool for many work IDs.
// Package schedule runs a periodic task once per cluster.
//
// # States of a lease
//
//	            Acquire                    Release
//	absent ---------------> held -----------------------> released
//	   ^                  |  ^  ^                           |
//	   |    expiry passes |  |  | Checkpoint of the         |
//	   |                  v  |  | same tenure               |
//	   |                lapsed -+                           |
//	   |                  |  Acquire: a new tenure,         |
//	   |                  +----> held <---------------------+
//	   |
//	   +--- Forget by the tenure in any state; Sweep of old retired (or lapsed) rows
//
// # The lease window
//
// Between two answers of the store, a holder knows its lease by its own clock: it is sure of it for a
// TTL from the moment at which the last successful call began. When this window closes, the context of
// the work ends, whether or not the store can be reached, and before anybody else can have acquired.
// See [Lease.StartRenewal] and [LeaseWindow].
//
// # What it does not do
//
// Fencing protects what is in the lease store. Effects elsewhere are protected only if the system that
// receives them checks [Token.FencingToken], or is idempotent: the work between two checkpoints runs
// at least once. A lease does not stop code that ignores its context, only what that code writes here. And
// the lease window trusts the local clock to run at the same rate as the store's.
package worklease
