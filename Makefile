# Two commands do all the set-up: `make demo` and `make test`.

CARGO ?= cargo
DOVETAIL = $(or $(CARGO_TARGET_DIR),target)/release/dovetail

.PHONY: help demo test tools build lint unit python doc bench clean

help: ## What can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1	/'

demo: build ## Build, compare nine policies on a Philly-like workload, and write a report
	$(DOVETAIL) compare --jobs 10000 --cluster 8x8 --load 1.0 --restart-cost 30s --out out/demo
	@echo "Open out/demo/report.html in a browser, then try: $(DOVETAIL) policies"

build: ## Build the binary
	$(CARGO) build --release --locked -p dovetail

test: lint tools unit python doc ## Everything that has to pass

tools: ## What tests need beside Rust: PyTorch, where it can be had
	@if python3 -c "import torch" 2>/dev/null || /usr/bin/python3 -c "import torch" 2>/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-torch) >/dev/null 2>&1 \
		|| echo "SKIPPED: python3-torch cannot be installed; the test with PyTorch is left out"; \
	else echo "SKIPPED: PyTorch is not installed (apt-get install python3-torch)"; fi

lint: ## Format and lints
	@if $(CARGO) fmt --version >/dev/null 2>&1; then $(CARGO) fmt --all --check; \
	else echo "SKIPPED: rustfmt is not installed (rustup component add rustfmt)"; fi
	@if $(CARGO) clippy --version >/dev/null 2>&1; then $(CARGO) clippy --locked --workspace --all-targets -- -D warnings; \
	else echo "SKIPPED: clippy is not installed (rustup component add clippy)"; fi

unit: ## All tests, doc tests included
	$(CARGO) test --locked --workspace

python: ## Tests of the package for training scripts
	@if python3 --version >/dev/null 2>&1; then python3 -m unittest discover -q -s python/tests -t python; \
	else echo "SKIPPED: python3 is not installed"; fi

doc: ## The API documentation, without warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

bench: build ## Speed of the simulator and the engine on this machine
	$(DOVETAIL) bench sim

clean: ## Remove what was built
	$(CARGO) clean
	rm -rf out
