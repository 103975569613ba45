// Package pgtest gives tests a PostgreSQL of their own, and the means to make its life hard: servers
// that can be stopped and killed, a proxy that freezes, delays and loses, and PgBouncer in front.
// Only tests import it.
//
// [Start] finds a server in this order:
//
//  1. the one that WORKLEASE_TEST_POSTGRES_DSN (a postgres:// URL) points to. It is used as it is;
//     a test that needs more rights than that user has fails;
//  2. a throw-away cluster made with the binaries of WORKLEASE_TEST_POSTGRES_BIN, or else with those
//     on the PATH or in one of the usual folders;
//  3. a Docker container;
//  4. otherwise the test fails and says what to install. It is never skipped: a test run without
//     a server must not look like a good one.
//
// A cluster lives as long as the test process and no longer, however that ends: small shell scripts
// watch a pipe whose other end the test process holds. The kernel closes it on exit, panic and kill
// -9 alike, upon which they stop PostgreSQL and remove its directory. Hence no test needs a TestMain.
package pgtest
