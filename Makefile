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

vectors: setup  ## Make the files in vectors/ from the reference.
	PYTHONPATH=libs:services $(BIN)/python -W ignore -m scripts.make_vectors

lint: setup  ## Check style, types, arrows of the house, and protos.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint deploy/docker/Dockerfile
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	scripts/check_breaking_protos.sh
	$(BIN)/python -m scripts.compatibility

KUSTOMIZE := build/tools/kustomize

$(KUSTOMIZE): Makefile
	GOBIN=$(CURDIR)/build/tools go install sigs.k8s.io/kustomize/kustomize/v5@v5.7.1

tools: $(KUSTOMIZE)  ## Install Kustomize, which builds the manifests for their tests (needs Go; kubectl will do, too).

test: setup  ## Run all tests, with coverage.
	$(BIN)/pytest --cov --cov-report=term

packages: setup  ## Build the packages of all languages into dist/ (ONLY=go,rust,npm,maven,python).
	$(BIN)/python -m scripts.packages $(if $(ONLY),--only $(ONLY))

release: setup  ## Keep what clients of this version rely on, so that no later change breaks them.
	$(BIN)/python -m scripts.release

version: setup  ## Begin the next version, in the packages of all languages (NEXT=).
	$(BIN)/python -m scripts.release $(or $(NEXT),$(error NEXT= is the version to begin))

SECONDS ?= 600
SEED ?= $(shell date +%s)

faults: setup  ## Prove it for longer: histories while servers are killed, stopped and cut off (SECONDS=, SEED=).
	PYTHONPATH=tests $(BIN)/python -m faults --seconds $(SECONDS) --seed $(SEED)

PICTURES ?= 20000
FROM ?= 0

fuzz: setup  ## Damaged pictures and spoilt requests through the real service, for longer (PICTURES=, FROM=).
	INTERLOCK_FUZZ_COUNT=$(PICTURES) INTERLOCK_FUZZ_FROM=$(FROM) $(BIN)/pytest tests/preprocess/fuzz

kernel-cases: setup  ## Compare the kernels in 20,000 random cases, twice; CI takes 2,000.
	INTERLOCK_KERNEL_CASES=20000 $(BIN)/pytest tests/vision/test_kernels.py -k random_cases

demo: setup  ## Run the main job on real input, start to end.
	$(BIN)/interlock demo

PEERS ?= $(wildcard build/peers)

bench: setup  ## Measure all anew and draw docs/figures.md (PEERS=folder: beside the peers; QUICK=1: in short).
	$(BIN)/interlock bench $(if $(PEERS),--peers $(PEERS)) $(if $(QUICK),--quick) --output build/bench
	$(BIN)/python -m benchmarks.plots build/bench docs/figures.md

.venv-pins/installed: Makefile
	$(PYTHON) -m venv .venv-pins
	.venv-pins/bin/pip install --quiet 'uv>=0.9,<1'
	@touch $@

PINS := deploy/docker/requirements
PIN := .venv-pins/bin/uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-annotate --no-header

pins: .venv-pins/installed  ## Choose anew which versions of all packages the images have.
	$(PIN) --extra bootstrap pyproject.toml -o $(PINS)/bootstrap.txt
	$(PIN) --extra all pyproject.toml -o $(PINS)/preprocess.txt
	$(PIN) $(PINS)/tools.in -o $(PINS)/tools.txt

images:  ## Prove the images' steps without an engine: install, and serve from a read-only root (as root).
	scripts/check_image_steps.sh

.PHONY: help setup stubs vectors lint tools test packages release version faults fuzz kernel-cases demo bench pins images
