# The verbs of the house. `make help` lists them; CI runs `make check`.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X main.version=$(VERSION)
BINARY   := bin/chordwheel
MAX_SIZE := 40000000
FUZZTIME ?= 10s
TOOL     := go tool -modfile=tools/go.mod

# The product never links C, so that one file runs on any machine of its kind.
export CGO_ENABLED := 0
# What the build stamps is the line above; a clone without history builds too.
export GOFLAGS := -buildvcs=false $(filter-out -buildvcs=%,$(GOFLAGS))

.PHONY: help build run test race fuzz bench lint generate drift size e2e check clean

help: ## list the verbs
	@grep -hE '^[a-z0-9]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

build: ## build bin/chordwheel
	@[ -e $(BINARY) ] || echo "building; the first time takes a minute or two" >&2
	@go build -trimpath -ldflags '$(LDFLAGS)' -o $(BINARY) ./cmd/chordwheel

run: build ## build, then start a hub and a device here
	@exec $(BINARY) up $(ARGS)

test: ## every Go test
	go test -timeout 10m ./...

race: ## every Go test of what runs at once under the race detector (needs a C compiler)
	@tools/race.sh

fuzz: ## every fuzz target, FUZZTIME each
	@tools/fuzz.sh $(FUZZTIME)

bench: build ## Go benchmarks, the edge against bare proxies as ratios, then the policy's simulated weeks
	go test -run '^$$' -bench . -benchmem -benchtime 200ms ./...
	go run ./bench -binary $(BINARY) $(BENCHFLAGS)
	$(BINARY) simulate examples/simulate/*/*.yaml --policies none

lint: ## gofmt, vet, staticcheck, and the shape of scripts and lock files
	@tools/lint.sh
	go vet ./...
	$(TOOL) staticcheck ./...

generate: ## write the generated files anew
	go generate ./...

drift: ## fail if a generated file is not what generate writes
	@tools/drift.sh

size: build ## fail if the binary outgrew its budget
	@size=$$(wc -c < $(BINARY)); \
	if [ "$$size" -ge $(MAX_SIZE) ]; then echo "size: $(BINARY) has $$size bytes, the budget is $(MAX_SIZE)" >&2; exit 1; fi; \
	echo "size: $$size of $(MAX_SIZE) bytes"

e2e: build ## the README's lines, the real openai client, Open WebUI's calls, a browser tab (needs curl, node, npm, chromium)
	@tools/readme.sh
	@command -v npm >/dev/null || { echo "e2e: npm is missing: apt-get install nodejs npm" >&2; exit 1; }
	cd examples/openai-client && npm ci --ignore-scripts --no-audit --no-fund && npm test
	cd examples/openwebui-filter && npm test
	cd examples/browser && npm test

check: ## all that CI runs, each step with its time
	@tools/check.sh build size lint drift test race fuzz e2e

clean: ## remove what build and e2e made
	rm -rf bin examples/openai-client/node_modules
