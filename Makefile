# Everything installs into .venv and nothing asks for root. `make help` lists the targets.

PYTHON ?= python3
# For two cores: a third of the time of the tests is waiting.
PYTEST_WORKERS ?= 3
PYTEST_ARGS ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

# The marks are named after what was installed and where: contents decide, not file times, which a checkout, a copy or a
# restored cache can set to anything. A mark is written by the last line of its rule, so a broken install has none.
LOCKED := $(VENV)/.locked-$(shell { pwd; cat requirements.lock; } | cksum | cut -d' ' -f1)
INSTALLED := $(VENV)/.installed-$(shell { pwd; cat requirements.lock pyproject.toml; } | cksum | cut -d' ' -f1)
TOOLS := $(VENV)/.tools-$(shell { pwd; cat requirements.lock requirements-dev.lock; } | cksum | cut -d' ' -f1)
BACKENDS := $(VENV)/.backends-$(shell { pwd; cat requirements.lock requirements-backends.lock; } | cksum | cut -d' ' -f1)

# An environment of its own for the older A2A SDK: agents that speak 0.3 run in it as the tests' counterparts.
THIRD_PARTY_LOCK := tests/fixtures/a2a_03_requirements.txt
THIRD_PARTY_VENV := $(VENV)/third-party-a2a
THIRD_PARTY := $(THIRD_PARTY_VENV)/.installed-$(shell cksum <$(THIRD_PARTY_LOCK) | cut -d' ' -f1)

# uv installs the same locks in less than half of pip's time. It does not read pip's configuration: where it reaches no registry, pip does the work.
# The locks are complete (--no-deps): some packages ask for more than is used (pyproject.toml, exclude-dependencies).
define install_lock
$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps -r $(1) 2>$(VENV)/.uv-errors \
  || $(PIP) install --quiet --require-hashes --no-deps -r $(1)
endef

.DEFAULT_GOAL := help
.PHONY: help setup tools backends run test check test-full metrics fmt lock clean

# A .venv whose interpreter was removed, or upgraded underneath it, counts as none.
ifneq ($(shell $(BIN)/python -c 'import pip; print("ok")' 2>/dev/null),ok)
.PHONY: $(LOCKED) $(INSTALLED) $(TOOLS) $(BACKENDS) $(THIRD_PARTY)
endif

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED) ## install what running needs into .venv

# Not part of setup: whoever only runs the system needs no linter, no test runner, and no other databases.
tools: $(INSTALLED) $(TOOLS)
backends: $(BACKENDS) $(THIRD_PARTY)

run: setup ## start the system; extra arguments: make run ARGS="..."
	@$(BIN)/caipe serve $(ARGS)

test: check ## the checks, then all tests; one test: make test PYTEST_ARGS="-k name"
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --durations=20 $(PYTEST_ARGS)

check: tools backends ## the fast part: lint, format, import rule, types
	$(BIN)/ruff check --output-format=concise
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

# Property tests run again, with all of their examples: `make test` tries a third of them.
FULL := -m "full or hypothesis"
test-full: export EXAMPLES_FACTOR ?= 1
# Collecting first: pytest's code 5 (nothing collected) is no failure here, and its closing line would read like one.
test-full: tools backends ## the slow tests, marked `full`, and the property tests with all examples
	@$(BIN)/python -m pytest $(FULL) --collect-only -q $(PYTEST_ARGS) >$(VENV)/.full 2>&1; status=$$?; \
	if [ $$status -eq 5 ]; then echo "No test is marked full: nothing more to run."; exit 0; fi; \
	if [ $$status -ne 0 ]; then cat $(VENV)/.full; exit $$status; fi; \
	$(BIN)/python -m pytest $(FULL) -n $(PYTEST_WORKERS) --durations=20 $(PYTEST_ARGS)

quick-sanity: tools ## the supervisor and two agents as processes: health, names, order, narration, the final result
	$(BIN)/python -m pytest -n 0 $(PYTEST_ARGS) integration/test_streaming_harness.py

metrics: setup ## how dense and how plainly named the code is, beside two libraries of the field
	$(BIN)/python -m benchmarks.code_metrics

fmt: tools ## format, and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Only uv is needed, so that a new dependency can be locked before it can be installed.
COMPILE_GROUP := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --quiet
COMPILE := $(COMPILE_GROUP) pyproject.toml
lock: | $(BIN)/uv ## compile the locks from pyproject.toml; UV_ARGS="--upgrade" for newer versions
	$(COMPILE) --group build --group embeddings $(UV_ARGS) -o requirements.lock
	$(COMPILE_GROUP) --group dev -c requirements.lock $(UV_ARGS) -o requirements-dev.lock
	$(COMPILE) --extra postgres --extra redis --extra valkey --extra mongodb --group servers -c requirements.lock -c requirements-dev.lock $(UV_ARGS) -o requirements-backends.lock
	$(COMPILE_GROUP) --group installer $(UV_ARGS) -o requirements-uv.lock

clean: ## remove .venv and every cache
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/uv:
	@$(MAKE) setup

# A changed lock gets a new .venv: what an older one left behind could hide a missing dependency.
$(LOCKED):
	@$(PYTHON) -c 'import sys' 2>/dev/null || { \
	  echo "There is no $(PYTHON) here. Install Python 3.11 or newer (on Debian and Ubuntu: python3 and python3-venv)." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed, and $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another one with PYTHON=, as in: make run PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu install the package python3-venv, then run this again." >&2; exit 1; }
	@echo "Installing into $(VENV); the first time takes a minute or two."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install --quiet --require-hashes --no-deps -r requirements-uv.lock 2>$(VENV)/.uv-errors || true
	@$(call install_lock,requirements.lock)
	@touch $@

$(INSTALLED): $(LOCKED)
	@rm -f $(VENV)/.installed-*
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(TOOLS): $(LOCKED)
	@rm -f $(VENV)/.tools-*
	@$(call install_lock,requirements-dev.lock)
	@touch $@

$(BACKENDS): $(LOCKED)
	@rm -f $(VENV)/.backends-*
	@$(call install_lock,requirements-backends.lock)
	@touch $@

# The mark is a copy of the lock: the tests compare it with theirs.
$(THIRD_PARTY): $(LOCKED)
	@$(BIN)/python -m venv --clear --without-pip $(THIRD_PARTY_VENV)
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(THIRD_PARTY_VENV)/bin/python --require-hashes -r $(THIRD_PARTY_LOCK) 2>$(VENV)/.uv-errors \
	  || $(PIP) --python $(THIRD_PARTY_VENV)/bin/python install --quiet --require-hashes -r $(THIRD_PARTY_LOCK)
	@cp $(THIRD_PARTY_LOCK) $@
