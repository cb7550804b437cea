# Vitrine needs Go 1.26 alone to build. The demo also needs the right to make cgroups. The tests install the rest.
GO      ?= go
BIN     := bin/vitrine
# Without .git, git and Go would take the commit of a repository around this folder. git archive fills in the file VERSION.
ifneq ($(wildcard .git),)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
else
VERSION ?= $(shell grep -s '^v' VERSION || echo development)
NOVCS   := -buildvcs=false
endif
LDFLAGS := -s -w -X main.release=$(VERSION)
TESTLOG ?= /dev/null
GOTESTSUM := gotest.tools/gotestsum@v1.13.0
LINTER  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

export CGO_ENABLED = 0

PKG     ?= ./...
TIME    ?= 10s

PREFIX  ?= /usr/local

# A command before vitrine that gives it a cgroup. The cgroup must not hold make too.
SCOPE   ?=

# The program that writes the manual. It must run on this host, also if GOOS or GOARCH names another machine.
SELF    := $(BIN)
ifneq ($(GOOS)$(GOARCH),)
SELF    := GOOS= GOARCH= $(GO) run -ldflags '$(LDFLAGS)' ./cmd/vitrine
endif

# The arguments of vitrine in the demo, but for the folder of results. bench/demo.go reads them too.
DEMO := characterize catalog/ims-reference/deployment.yaml catalog/ims-reference/workload.yaml

# make -j build install must not install before it has built.
.NOTPARALLEL:

.PHONY: build install demo check test fuzz bench lint generate clean

build: ## the one static binary, its manual pages and shell completions
	$(GO) build -trimpath $(NOVCS) -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/vitrine
	rm -rf bin/man bin/completions
	mkdir -p bin/man bin/completions
	$(SELF) man bin/man
	$(SELF) completion bash > bin/completions/vitrine
	$(SELF) completion zsh > bin/completions/_vitrine
	$(SELF) completion fish > bin/completions/vitrine.fish

install: ## what make build made and the licenses, below PREFIX
	install -D -t $(DESTDIR)$(PREFIX)/bin $(BIN)
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 bin/man/*.1
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/bash-completion/completions bin/completions/vitrine
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/zsh/site-functions bin/completions/_vitrine
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d bin/completions/vitrine.fish
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/vitrine LICENSE
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/vitrine/LICENSES LICENSES/*

demo: build ## a clustered IMS, deployed at several sizes and measured
	$(SCOPE) $(BIN) $(DEMO) --out runs/demo-$$(date +%Y%m%d-%H%M%S)

check: build ## the inner loop: vet, lint, and the tests that need neither root nor installed packages
	$(GO) vet ./...
	$(MAKE) --no-print-directory lint
	./.ci/plain $(GO) test ./...

# make lint vets, so the tests need not. Without -count=1, Go repeats results from its cache, also skips, after the
# host changed. By default, a process under the race detector sleeps for a second before it ends with success, and
# the tests run hundreds of them.
test: ## install what the tests need, then run them under the race detector; PKG=./director/... for a part
	./.ci/install
	CGO_ENABLED=1 GORACE="atexit_sleep_ms=10 $(GORACE)" $(GO) run $(GOTESTSUM) --format pkgname --jsonfile $(TESTLOG) -- -race -vet=off -timeout 30m -count=1 $(PKG)

fuzz: ## every fuzz target for TIME, as many at once as there are CPUs; PKG="./wire/sip ./load" for those at or below some folders
	GO=$(GO) ./.ci/fuzz $(TIME) $(PKG)

bench: ## ratios against named peers; BENCH=NAME for one
	$(GO) run ./bench $(BENCH)

lint: ## all packages, or PKG
	$(GO) run $(LINTER) run $(PKG)

generate: ## the published JSON Schemas, and the BPF programs, which need clang, llvm and libbpf-dev, on amd64
	$(GO) generate ./...

clean:
	rm -rf bin
