# make setup, make demo, make test: on a fresh machine with Python >= 3.11 and Java >= 17.
PYTHON ?= python3
BIN := .venv/bin
SEEDS ?= 200
PYTEST := $(BIN)/python -m pytest -n 6 --dist loadgroup
# Hundreds of processes import the same modules: compile each once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test check check-fast static nightly compiled programs lint types docs simulate mutants \
	chaos damage fuzz bench bench-history pythons conformance

setup: .venv/.ready

.venv/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tidelog needs Python >= 3.11: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[test,docs,demo]'
	touch $@

demo: setup
	$(BIN)/tidelog demo

# Six at a time on two cores: half of what they take is waiting for timers, disks and other processes.
test: setup programs compiled
	$(PYTEST)

# What CI runs. The static checks use one core: the further Python has the other.
check: setup
	$(MAKE) --jobs 2 --output-sync static pythons
	$(PYTEST)

static: compiled lint types docs programs

# Six processes collect the tests at the same moment: in a fresh clone each would compile them all.
compiled: setup
	-$(BIN)/python -m pytest --collect-only --quiet > /dev/null

# While you work: the static checks, and the tests nearest to what differs from `main`.
check-fast: setup lint types
	$(BIN)/python tests/changed.py -n 4 --dist loadgroup

# All that CI has no time for: every test on every Python, thousands of seeds, each planted bug from
# the first seed on, killed brokers, damaged files, all of Kafka's recorded answers.
nightly: setup lint types docs programs compiled
	$(BIN)/python tests/pythons.py --all 3.12 3.13
	$(PYTEST) -m ""
	$(MAKE) simulate SEEDS=2000
	cd tests && ../$(BIN)/python -m sim --directories --seeds 200
	$(MAKE) mutants
	$(MAKE) chaos MINUTES=20
	$(MAKE) damage
	$(MAKE) fuzz MINUTES=20
	$(MAKE) conformance

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
	$(BIN)/mypy examples/typed/doors.py

# The site, in docs/_build/html. A warning is an error.
docs: setup
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build/html

# A sample of the rooms' own tests on the newest Python; all of them on all Pythons in `nightly`.
pythons: setup
	$(BIN)/python tests/pythons.py 3.13

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

# New input for all that reads bytes of clients and of files, another one in each run, for MINUTES.
fuzz: setup
	cd tests && ../$(BIN)/python -m fuzz --minutes $(or $(MINUTES),10)

bench: setup
	$(BIN)/python -m tidelog_bench

bench-history: setup
	$(BIN)/python bench/spark_history.py

conformance: setup
	cd tests && ../$(BIN)/python -m compat.conformance
	cd tests && ../$(BIN)/python -m compat.conformance.controllers
	cd tests && ../$(BIN)/python -m compat.conformance.cluster
	cd tests && ../$(BIN)/python -m compat.conformance.tiered
	cd tests && ../$(BIN)/python -m compat.conformance.sasl
	cd tests && ../$(BIN)/python -m compat.conformance.telemetry
	cd tests && ../$(BIN)/python -m compat.conformance.walks --seeds 100
