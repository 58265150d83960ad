# make run: start the gateway. make test: everything that CI checks. Both build .venv first, and again when
# pyproject.toml or the CPU kernels change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet
# The newest torch of the range is asked for by itself first: some indexes hold a small CPU build of it, which a resolver
# that meets it among other packages passes over.
TORCH := 'torch>=2.11,<2.14'
KERNELS := setup.py $(wildcard local_engine/kernels/cpu/src/*)

.PHONY: run test test-all check format bench clean

run: $(VENV)/local
	$(BIN)/gateway --config run.yaml

test: $(VENV)/dev
	$(MAKE) --no-print-directory check

test-all: $(VENV)/dev
	$(MAKE) --no-print-directory check PYTEST_ARGS="-m ''"

check:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(PYTEST_ARGS)

format:
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/dev
	$(BIN)/python bench/gateway/compare.py

clean:
	rm -rf $(VENV) build dist *.egg-info local_engine/kernels/cpu/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(VENV)/local: pyproject.toml $(KERNELS) | $(VENV)/bin/python
	$(PIP) $(TORCH)
	$(PIP) --editable '.[local]'
	touch $@

$(VENV)/dev: pyproject.toml $(VENV)/local
	$(PIP) --editable '.[local,dev]'
	touch $@
