# Every target installs its requirements, except Python and a C++ compiler.
#   make test ARGS="-k image"      passes ARGS to pytest; also for demo and bench
#   make test PYTHON=python3.12    uses another Python, in an environment of its own
#   make test CXX=clang++          uses another compiler, after make clean

PYTHON ?= python3
ifndef VENV
  VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(shell $(PYTHON) -c 'import sys; print(sys.version.split()[0] + sys.abiflags)' 2>/dev/null))
endif
ARGS ?=
ifeq ($(origin CXX),default)
  CXX := c++
endif
export CXX

# Named in every installation, because some packages require torch in any version, and pip then installs
# the newest CUDA build.
TORCH := torch==2.13.0
TORCHVISION := torchvision==0.28.0

VENV_PYTHON := $(VENV)/bin/python
PIP_INSTALL := $(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check
SOURCES := pyproject.toml README.md LICENSE CMakeLists.txt \
  $(shell find csrc python -path '*/__pycache__*' -prune -o -print)

.DEFAULT_GOAL := help
.PHONY: help demo test smoke compatibility test-all test-tensorflow test-frameworks test-gpu bench guard bench-gpu docs lint sanitize sanitize-threads neon wheel packages clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed $(VENV)/.demo ## Train on images, with the stock DataLoader and with pinfeed
	$(VENV_PYTHON) -m examples.demo $(ARGS)

# One process per CPU. TensorFlow, Ray, Lightning and GPUs have their own targets.
PARALLEL = -n logical --maxprocesses 8 --dist worksteal
TESTS = $(PARALLEL) --doctest-modules --pyargs pinfeed tests/ \
  --ignore-glob='/*to_tensorflow*' --ignore-glob='/*integrations/ray*' --ignore-glob='/*integrations/lightning*' --ignore=tests/frameworks --ignore=tests/gpu

test: $(VENV)/.installed $(VENV)/.demo $(VENV)/.dev ## Run the tests and the examples in docstrings, except slow ones
	$(VENV_PYTHON) -m pytest -m 'not slow' $(TESTS) $(ARGS)

smoke: $(VENV)/.installed $(VENV)/.dev ## Run the tests that every built wheel must pass; takes a minute
	$(VENV_PYTHON) -m pytest @tests/smoke.txt $(ARGS)

compatibility: $(VENV)/.installed $(VENV)/.demo $(VENV)/.dev ## Run the tests, and write versions and results into docs/compatibility.md
	$(VENV_PYTHON) tools/compatibility.py 'all but slow ones' -m 'not slow' $(TESTS)

test-all: $(VENV)/.installed $(VENV)/.demo $(VENV)/.dev ## Run the slow ones too, and every property with more examples
	HYPOTHESIS_PROFILE=thorough $(VENV_PYTHON) -m pytest $(TESTS) $(ARGS)

# In separate processes, because TensorFlow's threads never end, and the other tests fork.
TENSORFLOW_TESTS = tests/exports/test_to_tensorflow*.py 'tests/test_docs.py::test_page[docs/pytorch-to-tensorflow.md]'

test-tensorflow: $(VENV)/.installed $(VENV)/.dev $(VENV)/.tensorflow ## Run the tests of to_tensorflow, with TensorFlow
	$(VENV_PYTHON) -m pytest $(PARALLEL) --doctest-modules --pyargs pinfeed.exports.to_tensorflow $(TENSORFLOW_TESTS) $(ARGS)

# Separate and sequential, because Ray and Lightning are large and start processes.
FRAMEWORK_TESTS = tests/frameworks \
	'tests/test_docs.py::test_page[docs/ray.md]' \
	'tests/test_docs.py::test_page[docs/resume-in-a-framework.md]'

test-frameworks: $(VENV)/.installed $(VENV)/.dev $(VENV)/.integrations ## Run the tests inside Ray and Lightning
	$(VENV_PYTHON) -m pytest --doctest-modules --pyargs pinfeed.integrations $(FRAMEWORK_TESTS) $(ARGS)

bench: $(VENV)/.installed $(VENV)/.bench ## Measure pinfeed and its alternatives
	$(VENV_PYTHON) -m bench $(ARGS)

guard: $(VENV)/.installed $(VENV)/.dev ## Count the instructions of frequent calls, and fail if one needs many more than before
	$(VENV_PYTHON) -m bench.guard $(ARGS)

# Uses the packages of PYTHON (torch, NumPy, pybind11, scikit-build-core, cmake, ninja, pytest), no network.
test-gpu: ## Run the tests that need a GPU; SANITIZER=memcheck, racecheck or initcheck checks the kernels
	PYTHON='$(PYTHON)' SANITIZER='$(SANITIZER)' tools/gpu.sh test $(ARGS)

bench-gpu: ## Measure kernels, copies and whole epochs on a GPU
	PYTHON='$(PYTHON)' tools/gpu.sh bench $(ARGS)

# The variable silences an advertisement; --quiet also silences the warnings that --strict counts.
docs: $(VENV)/.docs ## Build the documentation into site/, and fail on a broken link
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

lint: $(VENV)/.installed $(VENV)/.dev ## Check style, types, and the native module against its stub
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV_PYTHON) -m mypy.stubtest pinfeed._core
	find csrc -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' | xargs $(VENV)/bin/clang-format --dry-run --Werror

sanitize: require-sanitizers $(VENV)/.installed $(VENV)/.dev ## Run kernels and pools under the sanitizers of g++
	tools/sanitize.sh $(VENV)

# Uses the packages of PYTHON (torch, NumPy, pip, pybind11, scikit-build-core, cmake, ninja, pytest, hypothesis).
sanitize-threads: ## Run the tests of threads under ThreadSanitizer, with a free-threaded PYTHON built with it
	PYTHON='$(PYTHON)' tools/sanitize_threads.sh $(ARGS)

neon: require-aarch64 $(VENV)/.build ## Cross-compile the NEON kernels and test them under qemu
	tools/neon.sh $(VENV)

wheel: $(VENV)/.installed $(VENV)/.dev ## Build a portable wheel into dist/ and test it in an empty environment
	tools/wheel.sh $(VENV) $(TORCH)

packages: $(VENV)/.dev $(VENV)/.tensorflow $(VENV)/.integrations $(VENV)/.docs ## Install the packages for all checks

clean: ## Remove build outputs; for a fresh start remove .venv too
	rm -rf build dist site $(VENV)/.installed .mypy_cache .pytest_cache .ruff_cache .hypothesis

# If a tool is missing, the script prints one line, and make stops.
require-%:
	$(call stop_if,$(shell PYTHON='$(PYTHON)' CXX='$(CXX)' tools/require.sh $*))
stop_if = $(if $(1),$(error $(1)))

# One stamp file per installed group, so that nothing is installed twice.

$(VENV)/.build: pyproject.toml | require-python require-compiler
	$(VENV_PYTHON) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --upgrade 'pip>=25.1'
	$(PIP_INSTALL) --group build
	@touch $@

$(VENV)/.torch: $(VENV)/.build
	$(PIP_INSTALL) $(TORCH)
	@touch $@

$(VENV)/.installed: $(VENV)/.torch $(SOURCES)
	$(PIP_INSTALL) --no-build-isolation .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.torch
	$(PIP_INSTALL) $(TORCH) $(TORCHVISION) --group dev
	@touch $@

$(VENV)/.tensorflow: pyproject.toml | $(VENV)/.torch
	$(PIP_INSTALL) $(TORCH) --group tensorflow
	@touch $@

$(VENV)/.integrations: pyproject.toml | $(VENV)/.torch
	$(PIP_INSTALL) $(TORCH) --group integrations
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.build
	$(PIP_INSTALL) --group docs
	@touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.torch
	$(PIP_INSTALL) $(TORCH) --group demo
	@touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/.torch
	$(PIP_INSTALL) $(TORCH) $(TORCHVISION) --group bench
	@touch $@
