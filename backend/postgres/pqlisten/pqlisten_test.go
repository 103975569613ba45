package pqlisten_test

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/conformance"
	"github.com/aetomala/worklease/backend/postgres"
	"github.com/aetomala/worklease/backend/postgres/pqlisten"
	"github.com/aetomala/worklease/internal/listentest"
	"github.com/aetomala/worklease/internal/pgtest"
)

func listener(dsn string) postgres.Listener { return pqlisten.DSN(dsn) }

func TestListener(t *testing.T) { listentest.Run(t, listener) }

// A store that listens and tells keeps the contract, wake-ups included.
func TestConformance(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	dsn := pgtest.Schema(t)
	db := pgtest.Open(t, "pq", dsn)
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	if _, err := db.Exec(postgres.Schema); err != nil {
		t.Fatal(err)
	}
	ginkgo.Describe("pqlisten", conformance.RunSuite(func() backend.Backend {
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
	ginkgo.RunSpecs(t, "pqlisten", suite, reporter)
}
