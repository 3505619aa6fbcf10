# `make check` is the main job and `make test` runs the tests; both set everything up first, in .venv.
# Hypothesis draws other examples in every run; `make test SEED=7` draws the same ones again.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: check test readme lint install

check: install
	$(BIN)/kvspec check

test: install
	$(BIN)/pytest -n auto --maxprocesses 8 $(if $(SEED),--hypothesis-seed=$(SEED))

# Puts into the README what its command prints now.
readme: install
	KVSPEC_UPDATE=1 $(BIN)/pytest cli/tests/test_setup.py -k counterexample

lint: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kvspec needs Python 3.11 or newer: name one, as in make PYTHON=python3.12 check")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# The documentation: generated pages first, then the site, in site/; broken links and anchors are errors.
.PHONY: docs
docs: .venv/docs
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.venv/docs: .venv/installed
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

# What takes long: every planted fault, the larger scopes that are compared exhaustively.
.PHONY: nightly
nightly: install
	$(BIN)/pytest -n auto --maxprocesses 8 -m nightly
