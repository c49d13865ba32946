# The only entry point, for people and CI. Prerequisites: Python >= 3.11, a Rust toolchain, a C compiler; for the demo and
# the tests, which run Spark, also Java 17.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.SHELLFLAGS := -eu -o pipefail -c

PYTHON ?= python3
PROFILE ?= fast
WORKERS ?= 4
VENV := .venv
BIN := $(VENV)/bin
export UV_PROJECT_ENVIRONMENT := $(VENV)
export SPARK_LOCAL_IP := 127.0.0.1
RUST_SOURCES := $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock

DENY := target/tools/bin/cargo-deny

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: prerequisites
prerequisites:
	@$(PYTHON) deploy/prerequisites.py

.PHONY: java
java:
	@$(PYTHON) deploy/prerequisites.py --java

$(VENV)/.synced: pyproject.toml uv.lock | prerequisites
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(sed -n 's/^  "\(uv>=.*\)",$$/\1/p' pyproject.toml)"
	$(BIN)/uv sync --quiet --locked --no-install-project --compile-bytecode
	@touch $@

$(VENV)/.built-$(PROFILE): $(VENV)/.synced $(RUST_SOURCES)
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --quiet --uv --profile $(PROFILE)
	$(BIN)/python -m compileall -q --invalidation-mode checked-hash python
	@rm -f $(VENV)/.built-*
	@touch $@

.PHONY: build
build: $(VENV)/.built-$(PROFILE) ## Set up .venv and build the data plane into it (PROFILE=fast|dev|release)

target/sim/.built: $(VENV)/.synced $(RUST_SOURCES)
	PROFILE=$(PROFILE) deploy/build-sim.sh target/sim
	PROFILE=$(PROFILE) deploy/build-sim.sh target/sim-planted --features planted
	@touch $@

.PHONY: sim
sim: target/sim/.built ## Build the engine over a simulated disk, for tests/simulator (development only)

.PHONY: wheel
wheel: $(VENV)/.synced ## Build the wheel into target/wheels: one for CPython 3.11 and newer
	$(BIN)/maturin build --quiet --release --out target/wheels

.PHONY: demo
demo: java build ## The main job on real data: NATS -> stream -> Spark -> Delta table, through two kill -9, checked row by row
	$(BIN)/python examples/flights.py

.PHONY: cluster
cluster: build ## Start three brokers and three nats-servers on this machine and stay
	$(BIN)/python examples/three_brokers.py

.PHONY: demo-cluster
demo-cluster: build ## Publish real data to three brokers while their leader is killed again and again, and check every record
	$(BIN)/python examples/flights_cluster.py

.PHONY: run
run: build ## Start a standalone broker and stay
	$(BIN)/bascule serve --standalone --data-dir bascule-data

.PHONY: test
test: java build sim java-archive torture-tools ## Run every test: Rust and Python side by side, then what measures time, alone
	cargo build --quiet --locked --profile $(PROFILE) -p bascule-bench-driver -p bascule-rig -p bascule-shim
	$(BIN)/python -m tests.failpoints
	# Compiled first: compilers take the processor from tests that wait for a clock.
	cargo test --quiet --locked --no-run -p bascule-record -p bascule-log -p bascule-wire -p bascule-replica -p bascule-rig
	cargo test --quiet --locked --no-run --profile $(PROFILE) -p bascule-broker -p bascule-client
	cargo test --quiet --locked --no-run --profile $(PROFILE) -p bascule-replica --test model
	$(MAKE) --no-print-directory -j2 --output-sync=line test-rust test-python
	$(BIN)/pytest -m "alone and not long"

.PHONY: test-rust
test-rust: build ## Run the tests of the Rust crates
	cargo test --quiet --locked -p bascule-record -p bascule-log -p bascule-wire -p bascule-replica -p bascule-rig
	cargo test --quiet --locked -p bascule-log --features failpoints --test failpoints
	cargo test --quiet --locked --profile $(PROFILE) -p bascule-replica --test model
	cargo test --quiet --locked --profile $(PROFILE) -p bascule-replica --features planted --test model
	BASCULE_REQUIRE_NATS=1 $(BIN)/python deploy/rust_tests.py --quiet --locked --profile $(PROFILE) -p bascule-broker -p bascule-client

.PHONY: java-archive
java-archive: java build # classes of Spark as the JVMs of tests map them: each starts in half of the processor time
	$(BIN)/python -m tests.java_start

.PHONY: test-python
test-python: build sim java-archive ## Run the Python tests on WORKERS workers; most of them wait more than they compute
	$(BIN)/pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder -m "not alone and not long"

.PHONY: coverage
coverage: build ## Which lines of Python the tests without sockets run; the least covered first, pages in target/coverage
	$(BIN)/pytest -q -n $(WORKERS) --cov=bascule --cov-branch --cov-report=html:target/coverage tests/unit tests/property
	$(BIN)/coverage report --sort=cover --skip-covered

.PHONY: torture
torture: build torture-tools ## Run the long tests and every rig at full scale, and write the scoreboard (ROWS="S3 S11" for some rigs)
	$(if $(ROWS),,$(BIN)/pytest -m long)
	@status=0; $(BIN)/python -m tests.torture $(ROWS) --full || status=$$?; $(BIN)/python -m tests.torture.scoreboard; exit $$status

.PHONY: torture-tools
torture-tools: # what the rigs need of the system; only root can install it, and the rigs say what is missing
	@for tool in mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs losetup:mount; do command -v $${tool%:*} >/dev/null || missing="$${missing:-} $${tool#*:}"; done; \
	if [ -n "$${missing:-}" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get install -y -qq $$missing; fi

.PHONY: scoreboard
scoreboard: build ## Write docs/reliability.md from the results in docs/reliability/
	$(BIN)/python -m tests.torture.scoreboard

$(DENY):
	cargo install --quiet --locked --debug --root target/tools cargo-deny@0.20.2

.PHONY: rustdoc
rustdoc: ## Build the documentation of the crates into target/doc; a warning is an error
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --quiet --locked --workspace --profile $(PROFILE) --no-deps --document-private-items

.PHONY: verify
verify: build ## Check format, lint, types, docs, spelling, words, dependencies, two parts at a time; changes nothing
	$(MAKE) --no-print-directory -j2 --output-sync=target verify-rust verify-python verify-dependencies

.PHONY: verify-rust
verify-rust: build rustdoc
	cargo fmt --all --check
	cargo clippy --quiet --locked --workspace --profile $(PROFILE) --all-targets -- -D warnings

.PHONY: verify-python
verify-python: build
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python -m mypy.stubtest bascule._native --allowlist deploy/stub-exceptions.txt
	$(BIN)/typos
	$(BIN)/python deploy/words.py
	$(BIN)/towncrier build --draft --version next >/dev/null
	$(BIN)/python specs/generate_descriptors.py --check
	$(BIN)/python specs/generate_methods.py --check
	$(BIN)/python specs/generate_errors.py --check
	$(BIN)/python specs/generate_settings.py --check
	$(BIN)/python specs/generate_metrics.py --check
	$(BIN)/python specs/generate_spark_options.py --check
	$(BIN)/python specs/generate_job_page.py --check

.PHONY: verify-dependencies
verify-dependencies: $(DENY)
	$(DENY) --offline check licenses bans sources

.PHONY: fix
fix: build ## Format and apply safe fixes
	$(BIN)/python specs/generate_descriptors.py
	$(BIN)/python specs/generate_methods.py
	cargo fmt --all
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .
	$(BIN)/python specs/generate_errors.py
	$(BIN)/python specs/generate_settings.py
	$(BIN)/python specs/generate_metrics.py
	$(BIN)/python specs/generate_spark_options.py
	$(BIN)/python specs/generate_job_page.py
	$(BIN)/python specs/generate_cli_page.py
	$(BIN)/python deploy/words.py --update

.PHONY: changelog
changelog: $(VENV)/.synced ## Move the files of changes/ into CHANGELOG.md (VERSION=0.2.0)
	$(BIN)/towncrier build --yes --version $(VERSION)

.PHONY: bench
bench: ## Measure everything in release and write bench/results/
	$(MAKE) build PROFILE=release
	cargo build --locked --release -p bascule-bench-driver -p bascule-shim
	$(BIN)/python bench/run.py

.PHONY: clean
clean: ## Remove what the targets made; the data of `make run` (in bascule-data) stays
	rm -rf $(VENV) target demo-output
