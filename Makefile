# Drawbridge. `make` or `make help` lists the targets.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

FUZZTIME ?= 30s
CRASH_ROUNDS ?= 50
SEEDS ?= 20

# What a Lambda needs: no cgo, no net/rpc of the dead go1.x runtime, no paths of
# the machine that built it.
LAMBDA_BUILD := CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -tags lambda.norpc -trimpath -ldflags="-s -w"

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: ## Start a hub on this machine (ARGS="-memory -tick 10")
	go run ./localstack $(ARGS)

.PHONY: doctor
doctor: ## Tell whether the endpoint in AWS_ENDPOINT_URL can hold a hub's state
	go run ./localstack doctor $(ARGS)

.PHONY: test
test: ## Run every test
	go test ./...

.PHONY: race
race: ## Run every test under the race detector, shuffled
	go test -race -shuffle=on ./...

.PHONY: vet
vet: ## Run go vet
	go vet ./...
	GOOS=darwin go vet ./... && GOOS=windows go vet ./...
	cd localstack/awsprobe && go vet ./...
	cd localstack/bench/dynamolock && go vet ./...

.PHONY: lint
lint: ## Run golangci-lint (.ci/run installs the pinned version)
	golangci-lint run ./...

.PHONY: bench
bench: ## Measure every operation and compare with the committed result (ACCEPT=1 replaces it)
	.ci/bench

.PHONY: compare
compare: ## Measure a durable hub over HTTP beside the reference, and dynamolock beside it
	go run ./localstack/bench/compare $(ARGS)
	cd localstack/bench/dynamolock && go test -run '^$$' -bench . -benchtime 2000x -count 3

.PHONY: load
load: ## Put a fleet on the hub of this machine (ARGS="-agents 200 -duration 5m -start")
	go run ./localstack load $(ARGS)

SOAK ?= 10m
# Settled messages that the hub begins with, as after days of work: for each new row
# an old one goes, so that what grows is a leak.
HISTORY ?= 60000

.PHONY: soak
soak: ## Work a durable hub for SOAK: latency and memory by window, and an audit
	go run ./localstack load -start -history $(HISTORY) -agents 50 -pause 1s -duration $(SOAK) -progress 15s

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME
	.ci/fuzz $(FUZZTIME)

.PHONY: probe
probe: ## Hold the embedded AWS against awsprobe, in memory and durable
	.ci/probe

.PHONY: crash
crash: ## Kill the embedded AWS CRASH_ROUNDS times and look for lost writes
	DRAWBRIDGE_CRASH_ROUNDS=$(CRASH_ROUNDS) go test ./localstack/fakeaws -run Crash -count=1 -timeout 20m -v

.PHONY: fresh
fresh: ## Run the model tests with fresh seeds (they print them; DRAWBRIDGE_SEED=n repeats one)
	DRAWBRIDGE_SEED=fresh go test ./ddb ./s3queue -run 'Model|Fault|Conforms' -count=1 -v

.PHONY: linearizability
linearizability: ## Check many histories of callers at once, on the embedded AWS
	DRAWBRIDGE_LONG=1 go test ./localstack/linearizability -count=1 -timeout 20m

.PHONY: visualise
visualise: ## Draw histories with their orders, as HTML in bin/histories
	mkdir -p bin/histories
	DRAWBRIDGE_HISTORIES="$(CURDIR)/bin/histories" go test ./localstack/linearizability -run 'History|Order' -count=1
	ls bin/histories

# A whole run takes about half an hour of two cores. SAMPLE=n judges n mutants by the
# tests that killed them last time; MUTATION takes the command's other flags.
SAMPLE ?= 0
MUTATION ?=

.PHONY: mutation
mutation: ## Break one guard at a time and tell which test fails (SAMPLE=n: only n of them)
	nice go run ./localstack/mutation -sample $(SAMPLE) -workers 2 $(MUTATION)

.PHONY: rie
rie: ## Run the deployed binary behind the Lambda runtime interface emulator
	.ci/rie

.PHONY: stack
stack: ## Create the stack on moto and MiniStack and compare it with the template
	.ci/stack

.PHONY: localstack
localstack: ## Start a hub on LocalStack, or MiniStack, with docker compose
	docker compose -f localstack/compose.yaml up

.PHONY: sim
sim: ## Simulate the fleet with the usual seeds and SEEDS fresh ones (DRAWBRIDGE_SEED=n repeats one)
	DRAWBRIDGE_LONG=1 DRAWBRIDGE_SIM_SEEDS=$(SEEDS) go test ./localstack/simulation -count=1 -timeout 60m -v

.PHONY: template
template: ## Check template.yaml with cfn-lint and the SAM translator
	cfn-lint template.yaml infra/*.yaml
	python3 infra/check.py template.yaml

.PHONY: sam
sam: ## Validate and build with the AWS SAM CLI; it is installed into the tools cache
	.ci/sam

.PHONY: bootstrap
bootstrap: bin/bootstrap ## Build the one binary that every Lambda runs, for arm64

.PHONY: ci
ci: ## Run all that CI runs; it installs what it needs
	bash .ci/run

# All that the binary is made of; folders too, since a file that is gone leaves no
# other trace.
BOOTSTRAP_SOURCES = go.mod go.sum Makefile $(shell find core ddb functions s3queue -name testdata -prune -o -not -name '*_test.go' -print)

bin/bootstrap: $(BOOTSTRAP_SOURCES)
	@mkdir -p bin
	$(LAMBDA_BUILD) -o $@.new ./functions/bootstrap
	@mv $@.new $@

# sam build calls build-<logical id> for every function, in this folder
# (samconfig.toml): the first one builds, all others link to the same file.
build-%: bin/bootstrap
	@ln -f bin/bootstrap "$(ARTIFACTS_DIR)/bootstrap" 2>/dev/null || cp bin/bootstrap "$(ARTIFACTS_DIR)/bootstrap"
