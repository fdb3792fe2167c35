# Every target sets up what it needs in .venv by itself; only Python 3.11+ has to be there.
#   make test PYTHON=python3.13        another interpreter (run `make clean` first)
#   make test ARGS="-k breaker -x"     arguments for pytest
#   make test JOBS=0                   in one process; JOBS=8 in eight, each with databases of its own

PYTHON ?= python3
ARGS   ?=
JOBS   ?= 2
SIZE   ?= 20
SEED   ?= $(shell date +%s)

VENV  := .venv
PY    := $(VENV)/bin/python
DEMO  := $(VENV)/.holdfast-demo
DEV   := $(VENV)/.holdfast-dev
PEERS := .venv-peers/.holdfast-peers
PIP   := -m pip install --quiet --disable-pip-version-check

# Where nothing compiled is kept, each of the tests' many processes compiles everything anew; `make clean` removes it.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo console test torture check api fmt bench docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEMO) ## A shop with outages, told in the terminal and shown in the console, until Ctrl-C
	@$(MAKE) --no-print-directory console || echo "the console could not be built; the demo runs without it"
	@$(PY) -m holdfast.demo $(ARGS)

console: $(DEMO) ## Build the web console, if it has changed
	@$(PY) console/build.py

test: $(DEV) ## Run every test, the torture tests at their small size
	@$(PY) console/build.py
	@$(PY) -m pytest --numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder $(ARGS)

torture: $(DEV) ## Run the randomised tests for long; SEED=7 repeats a run, SIZE=20 is the length
	@echo "torture: SEED=$(SEED) SIZE=$(SIZE)"
	@SEED=$(SEED) SIZE=$(SIZE) $(PY) -m pytest -m torture --timeout=3600 $(ARGS)

check: $(DEV) ## Lint, format, types, layers and the list of public names
	@echo "ruff check";         $(PY) -m ruff check --quiet .
	@echo "ruff format";        $(PY) -m ruff format --quiet --check . || { echo "run: make fmt"; exit 1; }
	@echo "mypy --strict, and pyright beside it"; \
	    $(PY) -m mypy --no-error-summary & mypy=$$!; \
	    PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PY) -m pyright; pyright=$$?; \
	    wait $$mypy && exit $$pyright
	@echo "lint-imports";       $(VENV)/bin/lint-imports --no-logo
	@echo "public names";       $(PY) -m pytest tests/test_public_names.py

api: $(DEV) ## Write tests/public_names.txt anew; review its diff like code
	@$(PY) -c "import holdfast, pathlib; \
	    pathlib.Path('tests/public_names.txt').write_text('\n'.join(sorted(holdfast.__all__)) + '\n')"
	@echo "wrote tests/public_names.txt"

fmt: $(DEV) ## Format, and fix what ruff can fix safely
	@$(PY) -m ruff check --fix --quiet . ; $(PY) -m ruff format .

bench: $(DEV) $(PEERS) ## Measure against a bare call, a hand-fused floor and the peers
	@$(PY) -m benchmarks $(ARGS)

docs: $(DEV) ## Build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(PY) -m mkdocs build --quiet --strict --site-dir site
	@echo "built site/index.html"

clean: ## Remove everything the other targets made
	rm -rf $(VENV) .venv-peers site dist console/node_modules src/holdfast/server/static .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A venv that was left half-made, or whose interpreter is gone, is made again.
define ensure_venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
    echo "Holdfast needs Python 3.11 or newer; $(PYTHON) is not. Name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
@$(1)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(1)
endef

$(DEMO): pyproject.toml
	$(call ensure_venv,$(VENV))
	@echo "setting up $(VENV) for the demo (once) ..."
	@$(PY) $(PIP) --editable '.[demo]'
	@touch $@

# The developer's install holds everything the demo's does.
$(DEV): pyproject.toml
	$(call ensure_venv,$(VENV))
	@echo "setting up $(VENV) for development (once, about a minute) ..."
	@$(PY) $(PIP) --editable '.[dev]'
	@touch $(DEMO) $@

$(PEERS): benchmarks/peers.txt
	$(call ensure_venv,.venv-peers)
	@echo "setting up .venv-peers for the libraries we compare with (once) ..."
	@.venv-peers/bin/python $(PIP) --requirement $<
	@touch $@
