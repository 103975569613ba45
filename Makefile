# Every module of the repository is built and tested alike: the root, and whatever has a go.mod of its
# own beneath it. Override any of these on the command line, as in: make test COUNT=10
GO          ?= go
GOFMT       ?= gofmt
GIT         ?= git
COUNT       ?= 1
TESTFLAGS   ?=
BENCH       ?= .
SCALE       ?= 1
COVER       ?= . ./worker ./backend/memory ./checkpoint
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
VERSIONS    ?= 14 15 16 17 18
PG          ?=
MODULES     ?= $(patsubst %/,%,$(dir $(shell $(GIT) ls-files go.mod '*/go.mod')))

# Runs a command in every module, all of them also when one fails.
define each-module
@test -n "$(strip $(MODULES))" || { echo "no go.mod found: is this a git checkout?" >&2; exit 1; }; \
failed=; \
for module in $(MODULES); do \
	echo "--- $@ in $$module"; \
	(cd "$$module" && $(1)) || failed="$$failed $$module"; \
done; \
if [ -n "$$failed" ]; then echo "failed in:$$failed" >&2; exit 1; fi
endef

# Sets the folder of the PostgreSQL binaries, if a version is asked for.
with-postgres = $(if $(PG),bin=$$($(CURDIR)/internal/pgtest/fetch.sh $(PG)) || exit 1; export WORKLEASE_TEST_POSTGRES_BIN="$$bin";)

.DEFAULT_GOAL := help
.PHONY: help test test-matrix test-postgres model proof check fmt-check vet staticcheck tidy-check api-check api bench cover

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
	while IFS='|' read -r target text; do printf '%-12s %s\n' "$$target" "$$text"; done

test: ## Run the tests of all modules; with PG=16 on that PostgreSQL (14 to 18), which is fetched
	$(call each-module,$(with-postgres) for i in $$(seq $(COUNT)); do $(GO) test -race -shuffle=on -count=1 -timeout 30m $(TESTFLAGS) ./... || exit 1; done)

test-matrix: ## Run the tests of the PostgreSQL store on each version from 14 to 18
	@for version in $(VERSIONS); do \
		echo "--- $@: PostgreSQL $$version"; \
		$(MAKE) --no-print-directory test-postgres PG=$$version || exit 1; \
	done

test-postgres:
	@$(with-postgres) $(GO) test -race -shuffle=on -count=1 -timeout 30m $(TESTFLAGS) ./backend/postgres ./internal/pgtest

model: ## Check the model of the protocol exhaustively; needs spin and gcc
	@proof/model/run.sh

proof: ## Run the long forms of the proofs under fault, in a quarter of an hour
	@$(with-postgres) GO='$(GO)' proof/run.sh

check: fmt-check vet staticcheck tidy-check api-check ## Run every check that is not a test of behaviour
	@echo "all checks passed"

fmt-check: ## Fail if a file is not as gofmt would have it
	@echo "--- $@"
	@files=$$($(GOFMT) -l .) && if [ -n "$$files" ]; then echo "not gofmt'ed:" $$files >&2; exit 1; fi

vet: ## Run go vet in all modules
	$(call each-module,$(GO) vet ./...)

staticcheck: ## Run staticcheck in all modules
	$(call each-module,$(GO) run $(STATICCHECK) ./...)

tidy-check: ## Fail if go mod tidy would change a module
	$(call each-module,GOWORK=off $(GO) mod tidy -diff)

api-check: ## Compare the exported surface and the imports with what is agreed
	@echo "--- $@"
	@$(GO) test -count=1 ./internal/archtest

api: ## Write the exported surface to api/worklease.txt
	$(GO) test -count=1 -run '^TestAPI$$' ./internal/archtest -update

bench: ## Run the benchmarks of all modules, then measure the stores for SCALE times 5 minutes
	$(call each-module,$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count=$(COUNT) $(TESTFLAGS) ./...)
	@echo "--- $@: tables"
	@$(with-postgres) cd bench && $(GO) test -run '^TestTables$$' -count=1 -timeout 0 -args -tables -scale=$(SCALE)

cover: ## Show the coverage of the core packages and what is not covered
	@packages=; for dir in $(COVER); do ls "$$dir"/*.go >/dev/null 2>&1 && packages="$$packages $$dir"; done; \
	$(GO) test -count=1 -coverprofile=cover.out $(TESTFLAGS) $$packages
	@printf '\nfunctions not fully covered:\n'
	@$(GO) tool cover -func=cover.out | awk '$$1 != "total:" && $$NF != "100.0%" { print "  " $$0; n++ } END { if (!n) print "  none" }'
	@printf '\nblocks not covered (file:from line.column,to line.column):\n'
	@awk 'NR > 1 && $$NF == 0 { print "  " $$1; n++ } END { if (!n) print "  none" }' cover.out
	@printf '\n%-48s %10s %10s %8s\n' package statements covered percent
	@awk 'NR > 1 { pkg = $$1; sub(/\/[^\/]*$$/, "", pkg); if (!(pkg in all)) order[++n] = pkg; all[pkg] += $$2; if ($$3 > 0) hit[pkg] += $$2 } \
		END { for (i = 1; i <= n; i++) { p = order[i]; printf "%-48s %10d %10d %7.1f%%\n", p, all[p], hit[p], 100 * hit[p] / all[p] } }' cover.out
