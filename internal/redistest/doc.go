// Package redistest gives tests a real Redis server.
//
// [Addr] returns the address of one that all tests of a process share. It is that in
// WORKLEASE_TEST_REDIS_ADDR if this is set, else one that is started from the redis-server on the PATH, on a
// free port, with its data in a folder of its own, and that ends with the process, however that ends.
// Tests share its data: each takes a prefix of its own.
//
// [New] starts a server for one test alone, which may kill it. [NewProxy] is the network in its bad moods.
//
// It speaks the protocol itself, so that it needs no client.
package redistest
