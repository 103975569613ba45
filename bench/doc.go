// Package bench measures the PostgreSQL store: against the least that PostgreSQL could do, against
// another library, and in bytes of log, round trips and rows. It is a module of its own because of the
// other library.
//
// The measurements are tests, since the servers come from pgtest. Without a flag they run for an
// instant, to show that they still work, and say nothing; with -tables they take some minutes and
// print tables in Markdown:
//
//	go test -run '^TestTables$' -args -tables -scale=1
//	go test -run '^TestTables$/^(wal|hot)$' -args -tables
//
// Machines differ, and so does one machine from minute to minute when others use it. Hence what is
// compared takes turns in short rounds, and the tables give ratios of the medians, also of the processor
// time that an operation takes. Nothing here fails because of a number.
package bench
