// Package schedule puts package schedule of the root module to a test with processes: three of them have the
// same task of a second's interval, that takes 5 ms, and clocks that are up to 300 ms apart. Each run leaves
// a row in a log in the store, with instants of the store's clock. What the nodes have asked for and been told
// and what the log says are then compared with what is promised:
//
//   - No two runs overlap, and a later one has the greater token.
//   - With AtLeastFor, runs are at least so far apart, counted from one acquisition to the next. If no node
//     was late, there is one run a tick.
//   - With a Slot, no slot is run to its end twice, however late a node is. If none was late, each is run.
//   - A node that is killed in the middle of its run leaves a slot that is caught up, or skipped, as the task
//     says, and not before AtMostFor is over.
//
// A node is late if it had its answer so long after its clock struck that AtLeastFor may be over. How often
// that happens depends on the machine: ticks go on until there have been enough without it, and the others
// are held to the rest.
//
// The short form is one of the tests. This makes it longer, and prints what there was:
//
//	WORKLEASE_PROOF_TICKS=60 go test -count=1 -v -timeout 0 . | grep '^proof:'
//
// Then a node is killed in a tenth as many rounds, for each policy.
package schedule
