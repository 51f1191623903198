# Everything installs into .venv and nothing asks for root. `make help` lists the targets.

PYTHON ?= python3
# For two cores: half of the time of the tests is waiting.
PYTEST_WORKERS ?= 4
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

# Another one for the MCP library before 2.0: tool servers that speak the older protocol run in it.
MCP_1_LOCK := tests/fixtures/mcp_1_requirements.txt
MCP_1_VENV := $(VENV)/mcp-1
MCP_1 := $(MCP_1_VENV)/.installed-$(shell cksum <$(MCP_1_LOCK) | cut -d' ' -f1)

# The official JavaScript clients, which the tests run where there is npm.
JS_LOCK := tests/fixtures/js_clients/package-lock.json
JS_FOLDER := $(VENV)/js-clients
ifneq ($(shell command -v npm 2>/dev/null),)
JS_CLIENTS := $(JS_FOLDER)/.installed-$(shell cksum <$(JS_LOCK) | cut -d' ' -f1)
endif

# The web page: its mark is in the folder that the build writes, and named after the sources. Node comes from this machine,
# or, where there is none or an old one, from a package in an environment of its own.
PAGE_FOLDER := ai_platform_engineering/web/static
PAGE := $(PAGE_FOLDER)/.built-$(shell ui/sources-sum)
PAGE_PACKAGES := ui/node_modules/.installed-$(shell cksum <ui/package-lock.json | cut -d' ' -f1)
NODE_LOCK := requirements-node.lock
NODE_VENV := $(VENV)/node
NODE_WORKS := node -e 'process.exit(+(process.versions.node.split(".")[0] < 20))' 2>/dev/null && command -v npm >/dev/null
WITH_NODE := PATH="$(CURDIR)/$(NODE_VENV)/bin:$$PATH"

# Another one for LangGraph Studio's server with the product in it: it needs an older protobuf than the product's lock has.
STUDIO_LOCK := tests/fixtures/studio_requirements.txt
STUDIO_VENV := $(VENV)/studio
STUDIO := $(STUDIO_VENV)/.installed-$(shell { pwd; cat $(STUDIO_LOCK); } | cksum | cut -d' ' -f1)

# Agent frameworks of others, each in an environment of its own: the full tests delegate to their agents, and they ask ours.
PEER_NAMES := adk agent-framework crewai fasta2a strands
PEER_LOCKS := tests/fixtures/peers
peer_mark = $(VENV)/peers/$(1)/.installed-$(shell cksum <$(PEER_LOCKS)/$(1).txt | cut -d' ' -f1)
PEERS := $(foreach name,$(PEER_NAMES),$(call peer_mark,$(name)))

# The tool servers of the shipped agents, as a user installs them; the full tests start them. Not every machine has the
# Python that PagerDuty's needs: its test then says so.
SERVER_AGENTS := argocd aws confluence gitlab jira komodor kubernetes pagerduty weather
SERVERS_HOME := $(VENV)/servers
SERVERS := $(SERVERS_HOME)/.installed-$(shell cksum <ai_platform_engineering/agents/locks/SHA256SUMS | cut -d' ' -f1)

# uv installs the same locks in less than half of pip's time. It does not read pip's configuration: where it reaches no registry, pip does the work.
# The locks are complete (--no-deps): some packages ask for more than is used (pyproject.toml, exclude-dependencies).
define install_lock
$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps -r $(1) 2>$(VENV)/.uv-errors \
  || $(PIP) install --quiet --require-hashes --no-deps -r $(1)
endef

# An environment of its own from a lock, whose dependencies are installed as the lock has them: folder, lock, mark.
# The mark is a copy of the lock: the tests compare it with theirs.
define install_environment
@$(BIN)/python -m venv --clear --without-pip $(1)
@$(BIN)/uv pip install --quiet --compile-bytecode --python $(1)/bin/python --require-hashes -r $(2) 2>$(VENV)/.uv-errors \
  || $(PIP) --python $(1)/bin/python install --quiet --require-hashes -r $(2)
@cp $(2) $(3)
endef

# Compiled modules and rewritten asserts are kept: without them collecting the tests takes twice the time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup tools backends peers servers page run demo studio test check lint check-page test-page test-full bench metrics fmt compose lock lock-servers clean

# A .venv whose interpreter was removed, or upgraded underneath it, counts as none.
ifneq ($(shell $(BIN)/python -c 'import pip; print("ok")' 2>/dev/null),ok)
.PHONY: $(LOCKED) $(INSTALLED) $(TOOLS) $(BACKENDS) $(THIRD_PARTY) $(MCP_1) $(JS_CLIENTS) $(PEERS) $(STUDIO)
endif

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED) ## install what running needs into .venv

# Not part of setup: whoever only runs the system needs no linter, no test runner, and no other databases.
tools: $(INSTALLED) $(TOOLS)
backends: $(BACKENDS) $(THIRD_PARTY) $(MCP_1) $(JS_CLIENTS)
# Only for `test-full`: 1.3 GB, most of it CrewAI's, that the other tests do without.
peers: $(PEERS)
# Also only for `test-full`: 1.5 GB, half of it for AWS.
servers: $(SERVERS)

# Without the page everything else works: a build that fails, as without a network, is told and stops nothing.
run: setup ## build the web page if its sources changed, and start the system; extra arguments: make run ARGS="..."
	@$(MAKE) --no-print-directory page || echo "The web page could not be built (above: why); the server starts without changes to it." >&2
	@$(BIN)/caipe serve $(ARGS)

# Two of its tool servers are npm packages: where this machine has no Node, they use the one that builds the page.
demo: setup ## a made-up company on this machine to try the agents on, without credentials; make demo ARGS="--seed 7"
	@$(MAKE) --no-print-directory page || echo "The web page could not be built (above: why); the demo starts without changes to it." >&2
	@$(NODE_WORKS) || test -x $(NODE_VENV)/bin/node || $(MAKE) --no-print-directory $(NODE_VENV)/.installed \
	  || echo "There is no Node.js (above: why); the demo goes on without the agents that need it." >&2
	@$(WITH_NODE) $(BIN)/caipe demo $(ARGS)

page: $(PAGE) ## build the web page if its sources changed
	@:

# Neither the command's statistics nor its look for a newer version leave this machine.
studio: $(STUDIO) ## the server of LangGraph Studio with the supervisor; extra arguments: make studio ARGS="--port 2025"
	@LANGGRAPH_CLI_NO_ANALYTICS=1 LANGGRAPH_NO_VERSION_CHECK=true $(STUDIO_VENV)/bin/langgraph dev --no-browser $(ARGS)

# Types are checked beside the tests, which leave a core idle now and then; what is wrong with them is told at the end.
test: lint check-page test-page ## the checks and all tests; one test: make test PYTEST_ARGS="-k name"
	@$(BIN)/mypy >$(VENV)/.types 2>&1 & types=$$!; \
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --durations=20 $(PYTEST_ARGS); status=$$?; \
	wait $$types || status=1; \
	cat $(VENV)/.types; exit $$status

check: lint check-page ## the fast part: lint, format, import rule, types
	$(BIN)/mypy

check-page: $(PAGE_PACKAGES) # types of the page
	cd ui && $(WITH_NODE) node_modules/.bin/tsc --noEmit

test-page: $(PAGE_PACKAGES) $(PAGE) # the page's fold on the golden files, and its other parts without a browser
	@cd ui && $(WITH_NODE) npm test --silent >$(CURDIR)/$(VENV)/.page-tests 2>&1 || { cat $(CURDIR)/$(VENV)/.page-tests; exit 1; }

lint: tools backends
	$(BIN)/ruff check --output-format=concise
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo

# Property tests run again, with all of their examples: `make test` tries a tenth of them.
FULL := -m "full or hypothesis"
test-full: export EXAMPLES_FACTOR ?= 1
# Collecting first: pytest's code 5 (nothing collected) is no failure here, and its closing line would read like one.
test-full: tools backends peers servers $(STUDIO) ## the slow tests, marked `full`, and the property tests with all examples
	@$(BIN)/python -m pytest $(FULL) --collect-only -q $(PYTEST_ARGS) >$(VENV)/.full 2>&1; status=$$?; \
	if [ $$status -eq 5 ]; then echo "No test is marked full: nothing more to run."; exit 0; fi; \
	if [ $$status -ne 0 ]; then cat $(VENV)/.full; exit $$status; fi; \
	$(BIN)/python -m pytest $(FULL) -n $(PYTEST_WORKERS) --durations=20 $(PYTEST_ARGS)

quick-sanity: tools ## the supervisor and two agents as processes: health, names, order, narration, the final result
	$(BIN)/python -m pytest -n 0 $(PYTEST_ARGS) integration/test_streaming_harness.py

bench: setup ## what the supervisor costs beside a plain proxy; BENCH_ARGS="--growth --soak 30" for more
	$(BIN)/python -m benchmarks.bench $(BENCH_ARGS)

metrics: setup ## how dense and how plainly named the code is, beside two libraries of the field
	$(BIN)/python -m benchmarks.code_metrics

fmt: tools ## format, and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Only uv is needed, so that a new dependency can be locked before it can be installed.
COMPILE_GROUP := $(BIN)/uv pip compile -c requirements-constraints.txt --universal --python-version 3.11 --generate-hashes --no-header --quiet
COMPILE := $(COMPILE_GROUP) pyproject.toml
DATABASES := --extra postgres --extra redis --extra valkey --extra mongodb
lock: | $(BIN)/uv ## compile the locks from pyproject.toml; UV_ARGS="--upgrade" for newer versions
	$(COMPILE) --group build --group embeddings $(UV_ARGS) -o requirements.lock
	$(COMPILE_GROUP) --group dev -c requirements.lock $(UV_ARGS) -o requirements-dev.lock
	$(COMPILE) $(DATABASES) --extra bedrock --extra google --extra groq --group servers -c requirements.lock -c requirements-dev.lock $(UV_ARGS) -o requirements-backends.lock
	$(COMPILE) $(DATABASES) --group build --group embeddings -c requirements.lock -c requirements-backends.lock $(UV_ARGS) -o requirements-image.lock
	$(COMPILE_GROUP) --group installer $(UV_ARGS) -o requirements-uv.lock
	$(COMPILE_GROUP) --group node $(UV_ARGS) -o $(NODE_LOCK)
	$(COMPILE) --group build --group embeddings --group studio $(UV_ARGS) -o $(STUDIO_LOCK)
	$(COMPILE_GROUP) --group mcp-1 $(UV_ARGS) -o $(MCP_1_LOCK)
	$(BIN)/python .ci/lock-extras $(UV_ARGS)
	cd ui && npm install --package-lock-only --ignore-scripts --no-audit --no-fund
	cd tests/fixtures/js_clients && npm install --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund
	for peer in $(PEER_NAMES); do $(COMPILE_GROUP) --group peer-$$peer $(UV_ARGS) -o $(PEER_LOCKS)/$$peer.txt || exit; done

# The file is written by hand but for the variables, which are as many as the settings.
compose: setup ## write the variables of the services into docker-compose.yaml, after a new setting or agent
	$(BIN)/python .ci/compose-variables

# Apart from `lock`: npm is needed, and the servers change with their definitions alone.
lock-servers: setup ## compile the locks of the agents' tool servers, with hashes; LOCK_ARGS="--upgrade" for newer dependencies
	$(BIN)/python .ci/lock-servers $(LOCK_ARGS)

clean: ## remove .venv and every cache
	rm -rf $(VENV) build dist ui/node_modules ui/.build $(PAGE_FOLDER) .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
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

$(THIRD_PARTY): $(LOCKED)
	$(call install_environment,$(THIRD_PARTY_VENV),$(THIRD_PARTY_LOCK),$@)

$(MCP_1): $(LOCKED)
	$(call install_environment,$(MCP_1_VENV),$(MCP_1_LOCK),$@)

ifdef JS_CLIENTS
$(JS_CLIENTS): $(LOCKED)
	@rm -rf $(JS_FOLDER) && mkdir -p $(JS_FOLDER)
	@cp tests/fixtures/js_clients/package.json $(JS_LOCK) $(JS_FOLDER)
	@npm ci --prefix $(JS_FOLDER) --ignore-scripts --no-audit --no-fund --loglevel=error
	@cp $(JS_LOCK) $@
endif

$(PAGE_PACKAGES): | $(LOCKED)
	@$(NODE_WORKS) || { test -x $(NODE_VENV)/bin/node && cmp -s $(NODE_LOCK) $(NODE_VENV)/.installed; } \
	  || $(MAKE) --no-print-directory $(NODE_VENV)/.installed
	@cd ui && $(WITH_NODE) npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

$(NODE_VENV)/.installed: $(NODE_LOCK)
	@echo "There is no Node.js 20 or newer here: installing one into $(NODE_VENV)."
	$(call install_environment,$(NODE_VENV),$(NODE_LOCK),$@)

# Its packages are no prerequisite: a page that is built needs none, and no Node.
$(PAGE):
	@$(MAKE) --no-print-directory $(PAGE_PACKAGES)
	@cd ui && $(WITH_NODE) npm run build --silent
	@touch $@

$(STUDIO): $(LOCKED)
	@echo "Installing LangGraph Studio's server into $(STUDIO_VENV)."
	@$(BIN)/python -m venv --clear $(STUDIO_VENV)
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(STUDIO_VENV)/bin/python --require-hashes --no-deps -r $(STUDIO_LOCK) 2>$(VENV)/.uv-errors \
	  || $(PIP) --python $(STUDIO_VENV)/bin/python install --quiet --require-hashes --no-deps -r $(STUDIO_LOCK)
	@$(PIP) --python $(STUDIO_VENV)/bin/python install --quiet --no-deps --no-build-isolation -e .
	@cp $(STUDIO_LOCK) $@

$(SERVERS): | $(INSTALLED)
	@rm -rf $(SERVERS_HOME) && mkdir -p $(SERVERS_HOME)
	@for agent in $(SERVER_AGENTS); do \
	  CAIPE_HOME=$(CURDIR)/$(SERVERS_HOME) $(BIN)/caipe agents install $$agent || test $$agent = pagerduty || exit 1; \
	done
	@touch $@

define peer_rule
$(call peer_mark,$(1)): $$(LOCKED)
	$$(call install_environment,$$(VENV)/peers/$(1),$$(PEER_LOCKS)/$(1).txt,$$@)
endef
$(foreach name,$(PEER_NAMES),$(eval $(call peer_rule,$(name))))
