# Every target does its own set-up. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin

help:  ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

setup: .venv/installed  ## Make the virtual environment .venv with everything in it.

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

.venv-stubs/installed: Makefile
	$(PYTHON) -m venv .venv-stubs
	.venv-stubs/bin/pip install --quiet grpcio-tools==1.71.2 mypy-protobuf==3.7.0 'setuptools<81'
	@touch $@

stubs: setup .venv-stubs/installed  ## Generate the stubs in libs/ from protos/, and those of services/ beside their protos.
	PATH="$(CURDIR)/$(BIN):$$PATH" buf generate
	PATH="$(CURDIR)/$(BIN):$$PATH" buf generate --template buf.gen.services.yaml

lint: setup  ## Check style, types, arrows of the house, and protos.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	scripts/check_breaking_protos.sh

test: setup  ## Run all tests, with coverage.
	$(BIN)/pytest --cov --cov-report=term

SECONDS ?= 600
SEED ?= $(shell date +%s)

faults: setup  ## Prove it for longer: histories while servers are killed, stopped and cut off (SECONDS=, SEED=).
	PYTHONPATH=tests $(BIN)/python -m faults --seconds $(SECONDS) --seed $(SEED)

kernel-cases: setup  ## Compare the kernels in 20,000 random cases, twice; CI takes 2,000.
	INTERLOCK_KERNEL_CASES=20000 $(BIN)/pytest tests/vision/test_kernels.py -k random_cases

demo: setup  ## Run the main job on real input, start to end.
	$(BIN)/interlock demo

bench: setup  ## Measure the kernels and the Bootstrap service, in short.
	$(BIN)/python -m benchmarks.kernel --quick
	$(BIN)/python -m benchmarks.topology --quick

.PHONY: help setup stubs lint test faults kernel-cases demo bench
