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

// Every driver, in every mode that it has, keeps the contract: prepared and not, behind a pooler with
// the settings that this calls for, and whatever the server's administrator has set for the session.
func TestConformance(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	describe := func(name, driver, dsn string, opts ...postgres.Option) {
		ginkgo.Describe(name, conformance.RunSuite(cleanStore(t, driver, dsn, opts...)))
	}
	for _, driver := range pgtest.Drivers() {
		describe(driver, driver, pgtest.Schema(t))
	}
	for _, driver := range []string{"pq", "pq-binary", "pgx-exec"} {
		describe(driver+" without prepared statements", driver, pgtest.Schema(t), postgres.WithoutPrepare())
	}
	for _, driver := range pooled {
		dsn := pgtest.NewBouncer(t, pgtest.Database(t), "default_pool_size = 5")
		describe(driver+" behind PgBouncer", driver, dsn, postgres.WithoutPrepare())
	}
	for _, driver := range []string{"pq", "pgx"} {
		describe(driver+" in an odd environment", driver, oddDatabase(t))
	}
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.NoColor = true // a failure is to be found among thousands of specs
	ginkgo.RunSpecs(t, "backend/postgres", suite, reporter)
}

// cleanStore returns what makes a store with no rows: one pool and one table for all specs.
func cleanStore(t *testing.T, driver, dsn string, opts ...postgres.Option) func() backend.Backend {
	db := pgtest.Open(t, driver, dsn)
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
