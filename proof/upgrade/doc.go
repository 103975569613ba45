// Package upgrade brings tables of older designs up to date while holders work, and compares all that the
// holders are told with the model of package model, and at the end every row.
//
// The tables are those of backend/postgres/testdata, with more leases of each kind added: live, released and
// lapsed ones. Before the first migration is done, holders of this version can do nothing with most of them,
// and may get errors, but no verdict about a lease. From then on they may get no other error either.
//
// -rounds has more tables of each design upgraded, and prints what there was:
//
//	go test -count=1 -v . -args -rounds 20
package upgrade
