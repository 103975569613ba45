// Package listentest has the tests that each listener of the PostgreSQL store passes, on a server that it
// makes hard to listen to. Only tests import it: those of modules for which backend/postgres has no driver.
package listentest
