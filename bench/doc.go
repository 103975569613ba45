// Package bench measures the stores in PostgreSQL and Redis and what is built on them: against the least that the
// server could do, against other libraries, and in bytes of log, round trips and rows. It is a module of its
// own because of the other libraries. docs/performance.md has what came of it.
//
// The measurements are tests, since the servers come from pgtest and redistest. Without a flag they run for an
// instant, to show that they still work, and say nothing; with -tables they take some minutes and
// print tables in Markdown:
//
//	go test -run '^TestTables$' -timeout 0 -args -tables -scale=1
//	go test -run '^TestTables$/^(wal|hot)$' -args -tables
//	go test -run '^TestFleet$' -timeout 0 -args -tables -processes 20 -leases 500 -hold 5m
//
// Machines differ, and so does one machine from minute to minute when others use it. Hence what is
// compared takes turns in short rounds, and the tables give ratios of the medians, also of the processor
// time that an operation takes. Nothing here fails because of a number.
package bench
