# `make demo` and `make test` install what they need.

export CARGO ?= cargo
DOVETAIL = $(or $(CARGO_TARGET_DIR),target)/release/dovetail

.PHONY: help demo test tools node-tools kube-tools build fmt lint language unit api-test page-test test-highs ui python doc bench clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1	/'

demo: build ## Build, compare nine policies on a Philly-like workload, and write a report
	$(DOVETAIL) compare --jobs 10000 --cluster 8x8 --load 1.0 --restart-cost 30s --out out/demo
	@echo "Open out/demo/report.html in a browser, then try: $(DOVETAIL) policies"

build: ## Build the binary
	$(CARGO) build --release --locked -p dovetail

test: lint language tools node-tools kube-tools unit api-test page-test python doc ## Run all checks and tests
	@cat $(or $(CARGO_TARGET_DIR),target)/skipped-tests 2>/dev/null || true

tools: ## Install PyTorch for tests, if possible
	@if python3 -c "import torch" 2>/dev/null || /usr/bin/python3 -c "import torch" 2>/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-torch) >/dev/null 2>&1 \
		|| echo "SKIPPED: python3-torch cannot be installed; the test with PyTorch is skipped"; \
	else echo "SKIPPED: PyTorch is not installed (apt-get install python3-torch)"; fi

# For pods on real kubelets; the tests print SKIPPED if one of these is missing.
NODE_PACKAGES = containerd runc containernetworking-plugins busybox-static iproute2
node-tools: ## Install containerd and its plugins for tests with real kubelets, if possible
	@if dpkg -s $(NODE_PACKAGES) >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(NODE_PACKAGES)) >/dev/null 2>&1 \
		|| echo "SKIPPED: $(NODE_PACKAGES) cannot be installed; tests with real kubelets are skipped"; \
	else echo "SKIPPED: tests with real kubelets need root and $(NODE_PACKAGES)"; fi

kube-tools: ## Build a Kubernetes control plane for tests with Go; the first build takes about 15 minutes
	@scripts/kube-control-plane >/dev/null || [ $$? = 3 ]

# Modules that a macro declares; `cargo fmt` does not find them.
MACRO_MODULES = crates/policies/src/order/*.rs

fmt: ## Format all code
	$(CARGO) fmt --all
	rustfmt --edition 2024 $(MACRO_MODULES)

# In the profile of the tests, so that procedural macros and build scripts are built only once.
lint: ## Check formatting and lints
	@if $(CARGO) fmt --version >/dev/null 2>&1; then $(CARGO) fmt --all --check && rustfmt --edition 2024 --check $(MACRO_MODULES); \
	else echo "SKIPPED: rustfmt is not installed (rustup component add rustfmt)"; fi
	@if $(CARGO) clippy --version >/dev/null 2>&1; then $(CARGO) clippy --locked --profile test --workspace --all-targets -- -D warnings; \
	else echo "SKIPPED: clippy is not installed (rustup component add clippy)"; fi

language: ## Search code, page and docs for retired words
	@scripts/check-language

unit: ## Run all Rust tests, including doc tests
	@if python3 --version >/dev/null 2>&1; then scripts/run-tests; else $(CARGO) test --locked --workspace; fi

# Builds the binary in the test profile; after `make unit` it exists already.
BINARY = $(CARGO) test --locked -q -p dovetail --test reference --no-run

# The built page is committed, so that `cargo build` needs no Node. The targets `ui` and `page-test` need Node 20 or newer.
NODE = node --version >/dev/null 2>&1 && npm --version >/dev/null 2>&1
NPM_CI = (cd ui && PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm ci --no-audit --no-fund --loglevel=error)

ui: ## Build the web page from ui/ into crates/web/page
	@if ! ($(NODE)); then echo "SKIPPED: Node is not installed; the committed page is kept"; \
	elif ! $(NPM_CI); then echo "SKIPPED: the packages of ui/ cannot be installed; the committed page is kept"; \
	else cd ui && npm run --silent build; fi

page-test: ## Test the web page in Chromium with a real scheduler and real agents
	@if ! command -v chromium >/dev/null 2>&1 && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1 || true; fi; \
	if ! ($(NODE)); then echo "SKIPPED: Node is not installed; the web page is not tested"; \
	elif ! command -v chromium >/dev/null 2>&1; then echo "SKIPPED: Chromium is not installed (apt-get install chromium); the web page is not tested"; \
	elif ! $(NPM_CI); then echo "SKIPPED: the packages of ui/ cannot be installed; the web page is not tested"; \
	else $(BINARY) && cd ui && \
		DOVETAIL_BIN="$${DOVETAIL_BIN:-$(abspath $(or $(CARGO_TARGET_DIR),target))/debug/dovetail}" CHROMIUM="$$(command -v chromium)" npm test --silent; fi

api-test: ## Send generated requests to every path of the API of a real server
	@$(BINARY) && scripts/api-fuzz

test-highs: ## Compare the integer-program solver with HiGHS; not part of `make test`, because HiGHS takes ten minutes to build
	@scripts/test-highs

python: ## Test the package for training scripts
	@if python3 --version >/dev/null 2>&1; then python3 -m unittest discover -q -s python/tests -t python; \
	else echo "SKIPPED: python3 is not installed"; fi

doc: ## Build the API documentation without warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --profile test --workspace --no-deps

bench: build ## Measure the simulator and the engine on this machine
	$(DOVETAIL) bench sim

clean: ## Remove all build results
	$(CARGO) clean
	rm -rf out
