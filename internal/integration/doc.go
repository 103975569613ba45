// Package integration has the tests of worker, leader, pool, vacuum and the observers on every store. One
// table serves all stores, so that a difference between them is a failure rather than a finding. The tests of
// outages, silent networks and many processes or work IDs are on PostgreSQL alone. It is a module of its own, since
// the client of the Redis store is none of the root module's.
package integration
