package postgres_test

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/conformance"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// Every driver, in every mode that it has, keeps the contract; prepared and not.
func TestConformance(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	for _, driver := range pgtest.Drivers() {
		ginkgo.Describe(driver, conformance.RunSuite(cleanStore(t, driver)))
	}
	for _, driver := range []string{"pq", "pq-binary", "pgx-exec"} {
		ginkgo.Describe(driver+" without prepared statements",
			conformance.RunSuite(cleanStore(t, driver, postgres.WithoutPrepare())))
	}
	ginkgo.RunSpecs(t, "backend/postgres")
}

// cleanStore returns what makes a store with no rows: one pool and one table for all specs.
func cleanStore(t *testing.T, driver string, opts ...postgres.Option) func() backend.Backend {
	db := pgtest.Open(t, driver, pgtest.Schema(t))
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10) // otherwise most of the time goes into new connections
	createTable(t, db)
	return func() backend.Backend {
		if _, err := db.Exec("DELETE FROM worklease_leases"); err != nil {
			ginkgo.Fail(err.Error())
		}
		store, err := postgres.New(db, opts...)
		if err != nil {
			ginkgo.Fail(err.Error())
		}
		return store
	}
}
