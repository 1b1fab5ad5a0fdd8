# The commands for developers. `make help` lists them.
GOLANGCI_VERSION := v2.15.0
TOOLS            := $(CURDIR)/.tools
TARGETS          := linux-amd64 linux-arm64 darwin-arm64 windows-amd64
FUZZTIME         ?= 5s
# What reads recipes, templates and definitions of other systems.
LANGUAGE         := /internal/(jsonx|yamlx|expr|compile|importer|lsp)/
RACEPART         ?= 0 1

.PHONY: help build test race lint cross bench measure mutate peers peers-ingress peers-page peers-builds fuzz fuzz-short nightly rewrite clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## build a static binary in bin/
	CGO_ENABLED=0 go build -trimpath -o bin/roux ./cmd/roux

test: ## vet and all tests; the README's second command
	./.ci/test

# Packages without goroutines, which internal/house checks: they cannot have data races.
PURE := ledger|plan|expr|jsonschema|pattern|compile|journal|machine|view|wire|heap|list|spell|linediff|layout|jsonx|yamlx|redact|picture|resource|schedule|mutation

# Tests that damage files, handle large values, read documents, compare long histories or
# send one request after the other, with one goroutine, and fuzz targets: they take minutes
# under the race detector.
SERIAL := ^(Fuzz|Test(A08_|F20_|F21_|F31_|F33_|F34_|I13_ScheduleKilled|HostileFiles|A15_A31_NamesThat|LargeOutputsOfAny|I06_|I15_|X158_|X159_|X160_|I11_ReconcileNames|Flipped|Damaged|Changed|ImagesOf|IndexAddsUp|LargestInputs|LargeOutputs|ListsAreStreamed|ContractsOfStreamed|RowsQuery|Put$$|X10_|HTMLTo|MarkdownTo|Markup|Table|CountsOf|ResultsHave|Suspension|ExpressionsOver|ActionsStream|AMillion|WordRecall|OneSeed|F50_ThreeDays|F50_ADay|A0[1-6]_|A10_|A24_|NegativeFuzz|BadRequests|DocsPage|X178_Async|DeferredRowsAre|ListsOfARecipe|ListsEndThough|EverySQL))|^TestContract$$/(ManyChanges|I15_Large|LargeTrees|I11_AccountsAsOf|JournalIsTrimmed|ManyRunsCompacted)

# The tests of commands that run processes, goroutines or readers beside each other. The
# others take ten minutes under the race detector, one command after the other.
BESIDE := ^TestScripts$$/^(pause|queue)$$|^Test(Feed|Holder|CtrlC|Cancel|F35_|Others|F48_|Job_Fetch|WriteOnlyOverTheSocket|Terminal|FilesOnATerminal|ASignal|I16_|AHost|SourceFails)

# The tests of the interface over HTTP that have requests, streams or changes beside each other.
APIBESIDE := ^Test(X206|X207|Disabled|Rotate|A21|X179|A25_Idle|Bulk|X154|F42|I13_Keyed|I13_Twin|F23|X181|R43|F36|F37|X161|X183|X185|Feed|X193)

# Packages whose tests run the code of others: in one goroutine (simulate), as whole programs or
# programs of users whose parts have tests of their own, or not at all.
WHOLE := /(roux|api|examples|examples/internal/[a-z]+|internal/(api|simulate|house|confine|command|conform)|sim|bench|supply|docs/[a-z-]+)$$

race: ## the short tests that have goroutines under the race detector; with RACEPART="0 5" a fifth of the packages
	go test -race -short -vet=off -ldflags='-s -w' -skip '$(SERIAL)' -timeout 20m $$(go list ./... | grep -vE '/internal/(($(PURE))(/|$$)|cli$$)|$(WHOLE)' | awk 'NR % $(lastword $(RACEPART)) == $(firstword $(RACEPART))')
	$(if $(filter 0,$(firstword $(RACEPART))),go test -race -short -vet=off -ldflags='-s -w' -run '$(APIBESIDE)' -timeout 20m ./internal/api)
	$(if $(filter-out 0,$(firstword $(RACEPART)))$(filter 1,$(lastword $(RACEPART))),go test -race -short -vet=off -ldflags='-s -w' -run '$(BESIDE)' -timeout 20m ./internal/cli)

lint: $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION) ## golangci-lint, installed into .tools
	$< run ./...

$(TOOLS)/golangci-lint-$(GOLANGCI_VERSION):
	GOBIN=$(TOOLS) GOFLAGS= go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(TOOLS)/golangci-lint $@

cross: $(TARGETS:%=cross-%) ## static builds for every platform

cross-%:
	CGO_ENABLED=0 GOOS=$(word 1,$(subst -, ,$*)) GOARCH=$(word 2,$(subst -, ,$*)) go build -trimpath -o /dev/null ./cmd/roux

bench: ## run every benchmark once
	go test -run '^$$' -bench . -benchtime 1s ./...

peers: ## measure other engines and Roux with the same shapes: half an hour on a quiet machine
	cd bench/peers && go run . -runs 3 -check

peers-ingress: ## measure the engines that are services through their own ingress, and Roux: a quarter of an hour
	cd bench/peers && go run . -runs 3 -shapes ingress

peers-page: ## write the newest results of both into docs/performance.md
	cd bench/peers && go test -run Page -rewrite .

peers-builds: ## build and test the module that measures other engines; takes minutes the first time
	cd bench/peers && go mod tidy -diff && go vet ./... && go test ./...

measure: ## measure every shape and its floors three times (20 min on a quiet machine), into docs/performance.md
	go run ./bench -runs 3 > measured.jsonl
	mv measured.jsonl bench/testdata/measured.jsonl
	go test ./bench -run Page -rewrite

mutate: ## mutation testing: random code changes that tests must detect; PACKAGES=, BUDGET=, SEED=
	go run ./sim/mutate $(if $(PACKAGES),-packages $(PACKAGES)) -budget $(or $(BUDGET),10m) -seed $(or $(SEED),1)

fuzz: ## run every fuzz target of the language for 10 minutes: three hours
	./.ci/fuzz 10m 0 1 '$(LANGUAGE)'

fuzz-short: ## run every fuzz target for FUZZTIME (5s), or with FUZZPART="0 3" a third of them
	./.ci/fuzz $(FUZZTIME) $(FUZZPART)

nightly: ## checks that take too long for each change: hours
	./.ci/nightly

rewrite: ## rewrite generated pages and golden files; read the diff like code
	go test ./internal/house ./internal/cli ./internal/compile/lint ./internal/telemetry ./bench -run "Page|Settings" -rewrite

clean: ## remove the files that the targets above create
	rm -rf bin dist .tools
