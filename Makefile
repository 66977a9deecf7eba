# Everything a newcomer needs: `make demo` to see it, `make test` to check it, `make bench` to measure it.
# Set PYTHON to choose an interpreter; otherwise the first one of 3.11 or later that can make virtual environments is taken.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WARM := $(VENV)/.warmed
BENCH := $(VENV)/.bench
KERNELS := whence/model/jit.py whence/model/record.py $(shell find whence -name '*.py' -path '*kernels*')
PYTEST_ARGS ?= -n auto --dist loadgroup

.PHONY: setup test lint demo bench clean

setup: $(WARM)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Whence needs Python 3.11 or later with the venv module; set PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Installing into $(VENV)"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev,spark]'
	@touch $@

# What is cached and still valid is not compiled again (whence/model/jit.py).
$(WARM): $(STAMP) $(KERNELS)
	@echo "Compiling kernels (once; about two minutes)"
	@$(BIN)/python -m whence.engine.warm
	@$(BIN)/python -m whence.explain.warm
	@touch $@

$(BENCH): $(STAMP)
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev,spark,bench]'
	@touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup lint
	$(BIN)/python -m pytest $(PYTEST_ARGS)

demo: setup
	$(BIN)/whence demo pipeline

bench: setup $(BENCH)
	$(BIN)/python -m benchmarks.recursive_peers --json results/recursive_peers.json
	$(BIN)/python -m benchmarks.recursive_peers --state-growth --memory --startup --json results/limits.json
	$(BIN)/python -m benchmarks.join_peers --json results/join_peers.json
	$(BIN)/python -m benchmarks.tpch --scale 0.1 --refresh 5 --json results/tpch.json
	$(BIN)/python -m benchmarks.nexmark --events 1000000 --json results/nexmark.json
	$(BIN)/python -m benchmarks.durable --json results/durable.json
	$(BIN)/python -m benchmarks.small_epochs --json results/small_epochs.json
	$(BIN)/python -m benchmarks.spark_pipeline --json results/spark_pipeline.json
	$(BIN)/python -m benchmarks.provenance_paper --json results/provenance_paper.json
	$(BIN)/python -m benchmarks.explain --json results/explain.json
	$(BIN)/python -m benchmarks.lineage_paper --json results/lineage_paper.json
	$(BIN)/python -m benchmarks.window_peers --memory --json results/window_peers.json
	$(BIN)/python -m benchmarks.page

clean:
	rm -rf $(VENV) build dist *.egg-info results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
