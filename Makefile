# make setup, make demo, make test: on a fresh machine with Python >= 3.11 and Java >= 17.
PYTHON ?= python3
BIN := .venv/bin
SEEDS ?= 200

.PHONY: setup demo test check programs lint types docs simulate mutants chaos damage bench pythons conformance

setup: .venv/.ready

.venv/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tidelog needs Python >= 3.11: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[test,docs,spark,s3,metrics]'
	touch $@

demo: setup
	$(BIN)/tidelog demo

# Three at a time on two cores: a third of what they take is waiting for timers and disks.
test: setup programs
	$(BIN)/python -m pytest -n 3 --dist loadgroup

check: setup lint types docs programs pythons test

# Kafka's jars and what tests run of Go, fetched and built once into the user's cache.
programs: setup
	$(BIN)/python tests/programs.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/codespell

types: setup
	$(BIN)/mypy

# The site, in docs/_build/html. A warning is an error.
docs: setup
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build/html

# The rooms' own tests on every further Python this machine has.
pythons: setup
	$(BIN)/python tests/pythons.py 3.12 3.13

# Clusters of 1 to 7 brokers, as each seed says, or BROKERS=N of them: SEEDS of them, or with
# MINUTES=N as many as that time allows.
simulate: setup
	cd tests && ../$(BIN)/python -m sim $(if $(MINUTES),--minutes $(MINUTES),--seeds $(SEEDS)) \
		$(if $(BROKERS),--brokers $(BROKERS))

# At which seed each planted bug (tests/sim/mutants) is found, in random runs or in a play.
mutants: setup
	cd tests && ../$(BIN)/python -m sim --mutants --seeds $(SEEDS)

# Real clients on three brokers that are killed, paused and lose their disks, for MINUTES.
chaos: programs
	cd tests && ../$(BIN)/python -m compat.chaos --minutes $(or $(MINUTES),5)

# Every kind of file of a broker, damaged in every way, of one broker and of one of three: what the
# next start makes of it.
damage: setup
	cd tests && ../$(BIN)/python -m damage

bench: setup
	$(BIN)/python -m tidelog_bench

conformance: setup
	cd tests && ../$(BIN)/python -m compat.conformance
	cd tests && ../$(BIN)/python -m compat.conformance.cluster
	cd tests && ../$(BIN)/python -m compat.conformance.tiered
