// Package proof puts the stores to a test that nobody has thought out: sequences of operations drawn at
// random and compared with a model of the contract, and histories of concurrent clients that are
// searched for an order in which each answer would have been right. It is a module of its own because
// of the tools for that. Beneath it are worker processes under fault (chaos), many leases for a long time
// (soak), older tables that are migrated while holders work (upgrade), periodic tasks of processes whose
// clocks differ (schedule), and the protocol as a checker reads it (model). run.sh runs the long forms of
// all; docs/reliability.md says what came of it.
//
// The tests are short by default. These variables make them longer, and have them print a line that
// begins with "proof:" for each store:
//
//	WORKLEASE_PROOF_STEPS=1000000     steps compared with the model on the memory store, and a hundredth of
//	                                  that with either driver, and with the server's own clock, on PostgreSQL
//	WORKLEASE_PROOF_HISTORIES=2000    histories: 72 % on the memory store, the others on PostgreSQL, of which
//	                                  a good third are under faults
//
//	WORKLEASE_PROOF_STEPS=1000000 WORKLEASE_PROOF_HISTORIES=2000 go test -count=1 -v -timeout 0 . | grep '^proof:'
//
// A sequence in which a store and the model differ is shrunk by rapid and printed as steps in Go, to be
// kept in regression_test.go. The targets of go test -fuzz run their seeds as ordinary tests.
//
// # Time
//
// The memory store reads a clock that the test moves. In PostgreSQL, a test's schema has a function
// clock_timestamp of its own, and search_path puts it before the system's: every statement of the store
// runs as it is, and reads a clock that an administrator's connection moves. So the very instant of an
// expiry can be met on both, to the store's last digit, and instants are compared exactly. Another run
// leaves PostgreSQL its own clock and moves the instants in the rows instead. It goes on during a call:
// then a call may have happened at any time from just before to just after it, and instants may be apart
// by as much.
package proof
