# make setup, make demo, make test: on a fresh machine with Python >= 3.11 and Java >= 17.
PYTHON ?= python3
BIN := .venv/bin
SEEDS ?= 200
BROKERS ?= 1

.PHONY: setup demo test check lint types simulate bench pythons conformance

setup: .venv/.ready

.venv/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tidelog needs Python >= 3.11: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[test,spark,s3]'
	touch $@

demo: setup
	$(BIN)/tidelog demo

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadgroup

check: setup lint types pythons test

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/mypy

# The rooms' own tests on every further Python this machine has.
pythons: setup
	$(BIN)/python tests/pythons.py 3.12 3.13

simulate: setup
	cd tests && ../$(BIN)/python -m sim --brokers $(BROKERS) --seeds $(SEEDS)

bench: setup
	$(BIN)/python -m tidelog_bench

conformance: setup
	cd tests && ../$(BIN)/python -m compat.conformance
