// Package soak holds many leases in one process, on one small PostgreSQL server, and measures what that
// costs: alone, beside work that uses up a connection pool of its own, and beside work that uses up the
// pool of the leases.
//
// As one of the tests it is over in seconds, and checks only what does not depend on speed. These flags make
// it a measurement, printed as a table:
//
//	go test -count=1 -v -timeout 0 . -args -leases 2000 -duration 10m -ttl 30s
//
// -duration is that of each of the three. -connections is the size of a pool, and -hold the time for which the
// work keeps a connection; there is more work than connections, so that somebody always waits for one.
package soak
