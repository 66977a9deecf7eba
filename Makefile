# Everything a newcomer needs: `make demo` to see it, `make test` to check it, `make bench` to measure it.
# `make test-deep` looks harder: more random programs, seeds and crashes (MINUTES=10 of random programs).
# Set PYTHON to choose an interpreter; otherwise the first one of 3.11 or later that can make virtual environments is taken.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
SPARK := $(VENV)/.spark
STAMP := $(VENV)/.installed
WARM := $(VENV)/.warmed
BENCH := $(VENV)/.bench
KERNELS := whence/model/jit.py whence/model/record.py $(shell find whence -name '*.py' -path '*/kernels/*')
PIP := $(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -c constraints.txt
PYTEST_ARGS ?= -n auto --dist loadgroup

# Tests start hundreds of processes: one that finds no bytecode compiles all it imports, three seconds each.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup test test-deep lint demo bench clean

# Kernels need the core alone, so they are compiled while the rest is installed.
setup:
	@$(MAKE) --no-print-directory $(CORE)
	@$(MAKE) --no-print-directory -j 2 $(STAMP) $(WARM)

$(CORE): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Whence needs Python 3.11 or later with the venv module; set PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Installing into $(VENV)"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(SPARK): $(CORE)
	@$(PIP) -e '.[spark]'
	@touch $@

$(STAMP): $(CORE)
	@$(PIP) -e '.[dev,spark]'
	@touch $(SPARK) $@

# What is cached and still valid is not compiled again (whence/model/jit.py).
$(WARM): $(CORE) $(KERNELS)
	@echo "Compiling kernels (once; a minute or two, on all cores)"
	@$(BIN)/python -m whence.runtime.warm
	@touch $@

$(BENCH): $(STAMP)
	@$(PIP) -e '.[dev,spark,bench]'
	@touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup lint
	$(BIN)/python -m pytest $(PYTEST_ARGS)

MINUTES ?= 10
test-deep: setup lint
	WHENCE_DEEP=1 $(BIN)/python -m pytest $(PYTEST_ARGS)
	$(BIN)/python -m tests.programs --minutes $(MINUTES)

demo:
	@$(MAKE) --no-print-directory $(CORE)
	@$(MAKE) --no-print-directory -j 2 $(SPARK) $(WARM)
	$(BIN)/whence demo pipeline

bench: setup $(BENCH)
	$(BIN)/python -m benchmarks.recursive_peers --json results/recursive_peers.json
	$(BIN)/python -m benchmarks.recursive_peers --state-growth --memory --startup --json results/limits.json
	$(BIN)/python -m benchmarks.join_peers --json results/join_peers.json
	$(BIN)/python -m benchmarks.tpch --scale 0.1 --refresh 5 --json results/tpch.json
	$(BIN)/python -m benchmarks.nexmark --events 1000000 --json results/nexmark.json
	$(BIN)/python -m benchmarks.durable --json results/durable.json
	$(BIN)/python -m benchmarks.small_epochs --json results/small_epochs.json
	$(BIN)/python -m benchmarks.segtoll --json results/segtoll.json
	$(BIN)/python -m benchmarks.lookups --json results/lookups.json
	$(BIN)/python -m benchmarks.serving --json results/serving.json
	$(BIN)/python -m benchmarks.delivery --json results/delivery.json
	$(BIN)/python -m benchmarks.subscriptions_scale --json results/subscriptions_scale.json
	$(BIN)/python -m benchmarks.subscriptions_messages --json results/subscriptions_messages.json
	$(BIN)/python -m benchmarks.subscriptions_routing --json results/subscriptions_routing.json
	$(BIN)/python -m benchmarks.bounds --json results/bounds.json
	$(BIN)/python -m benchmarks.subscriptions_joins --json results/subscriptions_joins.json
	$(BIN)/python -m benchmarks.reoptimize --json results/reoptimize.json
	$(BIN)/python -m benchmarks.spark_pipeline --json results/spark_pipeline.json
	$(BIN)/python -m benchmarks.exchange_deletions --json results/exchange_deletions.json
	$(BIN)/python -m benchmarks.provenance_paper --json results/provenance_paper.json
	$(BIN)/python -m benchmarks.explain --json results/explain.json
	$(BIN)/python -m benchmarks.lineage_paper --json results/lineage_paper.json
	$(BIN)/python -m benchmarks.window_peers --memory --json results/window_peers.json
	$(BIN)/python -m benchmarks.page

clean:
	rm -rf $(VENV) build dist *.egg-info results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
