package listentest

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/conformance"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/internal/pgtest"
)

// Conformance checks that a store that listens and tells keeps the contract, wake-ups included, by way of a
// driver.
func Conformance(t *testing.T, driver string, listener func(dsn string) postgres.Listener) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	dsn := pgtest.Schema(t)
	db := pgtest.Open(t, driver, dsn)
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	if _, err := db.Exec(postgres.Schema); err != nil {
		t.Fatal(err)
	}
	ginkgo.Describe("a store that listens, by "+driver, conformance.RunSuite(func() backend.Backend {
		if _, err := db.Exec("DELETE FROM worklease_leases"); err != nil {
			ginkgo.Fail(err.Error())
		}
		store, err := postgres.New(db, postgres.WithListener(listener(dsn), nil))
		if err != nil {
			ginkgo.Fail(err.Error())
		}
		return store
	}))
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.NoColor = true
	ginkgo.RunSpecs(t, "internal/listentest", suite, reporter)
}
