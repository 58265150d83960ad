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

.PHONY: run test test-all check format bench kernels sanitize sanitize-neon wheels clean

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

# The CPU kernels anew, for this machine.
kernels: $(VENV)/local
	$(BIN)/python setup.py build_ext --inplace --force

# The kernels' own tests under AddressSanitizer and UBSan, and under ThreadSanitizer. Needs GCC or Clang; some minutes.
KERNELS_TEST := $(wildcard tests/local_engine/kernels/cpu/*.cpp) \
	$(filter-out %/api.cpp,$(wildcard local_engine/kernels/cpu/src/*.cpp))
KERNELS_FLAGS := -std=c++17 -O1 -g -ffp-contract=off -fno-math-errno -pthread -Ilocal_engine/kernels/cpu/src
sanitize:
	mkdir -p build
	for flags in "" "-mavx2 -mfma -mf16c" "-march=native"; do \
		$(CXX) $(KERNELS_FLAGS) $$flags -fsanitize=address,undefined -fno-sanitize-recover=all $(KERNELS_TEST) \
			-o build/kernels_test && build/kernels_test 1 100 || exit 1; \
	done
	$(CXX) $(KERNELS_FLAGS) -march=native -fsanitize=thread $(KERNELS_TEST) -o build/kernels_test
	build/kernels_test 1 100

# The same tests on an emulated ARM CPU. Needs Debian's g++-aarch64-linux-gnu and qemu-user.
sanitize-neon:
	mkdir -p build
	aarch64-linux-gnu-g++ $(KERNELS_FLAGS) -march=armv8.2-a+dotprod -static $(KERNELS_TEST) -o build/kernels_test_neon
	qemu-aarch64 -cpu max build/kernels_test_neon 1 100

# manylinux wheels with all builds of the kernels in them; needs Docker or Podman. Settings: pyproject.toml.
wheels: $(VENV)/bin/python
	$(PIP) cibuildwheel
	$(BIN)/cibuildwheel --platform linux --output-dir dist

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
	$(PIP) --group dev
	touch $@
