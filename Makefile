# Every target works alone on a fresh machine: what it needs is made or installed first.
#
#   make test ARGS="tests/test_browser.py -x"    arguments for the command that a target runs
#   make demo PYTHON=/path/to/python3.12         the Python that .venv is made with

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
ARGS ?=
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow check bench clean browser redis
.NOTPARALLEL:

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(VENV)/.dev ## Make the environment .venv, with the tools for development

demo: $(VENV)/.base browser ## Drive real browsers on bundled pages and show the figures
	@$(BIN)/webgym demo $(ARGS)

test: $(VENV)/.dev browser redis ## Run the tests
	@$(BIN)/python -m pytest $(ARGS)

test-slow: $(VENV)/.dev browser redis ## Run the tests that take minutes
	@if grep -rq --include='*.py' 'mark\.slow' tests; then \
	    $(BIN)/python -m pytest -m slow --timeout=900 $(ARGS); \
	else \
	    echo "No test is marked slow, so none was run."; \
	fi

check: $(VENV)/.dev ## Lint, check the format and the types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(VENV)/.base browser ## Measure the browser tier against its bars
	@status=0; \
	for name in bench_server bench_pool; do \
	    $(BIN)/python -m benchmarks.$$name --quick $(ARGS) || status=1; \
	done; \
	exit $$status

clean: ## Remove the environment, caches and builds
	rm -rf $(VENV) build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are files, so a second run costs nothing; a change of what is required renews them.
$(VENV)/.base: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing WebGym into $(VENV)."
	@$(PIP) install -e . -c constraints.txt
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing WebGym and its development tools into $(VENV)."
	@$(PIP) install -e '.[dev]' -c constraints.txt
	@touch $(VENV)/.base $@

$(BIN)/pip:
	@tools/make-venv $(VENV)

# Asked every time, since a browser or a server can go away; when all is there it takes a moment.
browser: | $(BIN)/pip
	@$(BIN)/python -m omniboxes.browser install >/dev/null

redis:
	@tools/need redis-server redis-server
