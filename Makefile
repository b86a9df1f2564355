# `make` alone says what there is. Everything runs in .venv, which is made when first needed.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
PORT ?= 8000
SCALE ?= smoke
JOBS ?= 2
READY := .venv/.installed
PY := .venv/bin/python
# one thread for each process: two processes with two threads each only get in each other's way
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest
CHAPTERS := $(wildcard notebooks/*.ipynb notebooks/reference/*.ipynb)

.PHONY: help book serve test lint format unit notebooks site experiment bench install clean veryclean

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

book: $(READY) ## build the book into _build/html (makes .venv first where it is missing)
	@echo "== the book"
	$(PY) tools/book.py

serve: $(READY) ## serve the built book on http://127.0.0.1:8000 (PORT=... for another port)
	@test -f _build/html/index.html || $(MAKE) book
	@echo "Open http://127.0.0.1:$(PORT) (stop with Ctrl-C)"
	@$(PY) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

test: lint unit notebooks book site ## everything that continuous integration runs

lint: $(READY) ## check style and notebook hygiene
	@echo "== style"
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) tools/notebooks.py check

format: $(READY) ## put code and notebooks into the house style
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(PY) tools/notebooks.py clean
	$(PY) tools/readme.py

unit: $(READY) ## the library's tests
	@echo "== unit tests"
	$(PYTEST) -n $(JOBS) -m "not site and not notebooks" tests

notebooks: $(READY) ## run every chapter (nbval) and every experiment at smoke scale (papermill)
	@echo "== notebooks"
ifneq ($(CHAPTERS),)
	PYTHONPATH=tools $(PYTEST) -n $(JOBS) --dist loadfile -p nbval_keep --nbval-lax \
	  --nbval-cell-timeout 600 --nbval-sanitize-with tests/nbval_sanitize.cfg $(CHAPTERS)
endif
	$(PYTEST) -n $(JOBS) -m notebooks tests/test_notebooks.py

site: $(READY) ## look at every page of the built book in a real browser
	@echo "== the built book in Chromium"
	$(PYTEST) -n $(JOBS) tests/test_site.py

experiment: $(READY) ## run one experiment: make experiment NAME=... SCALE=smoke
	$(PY) tools/notebooks.py run "$(NAME)" SCALE=$(SCALE)

bench: $(READY) ## how fast training is, against the usual way (best on a quiet machine)
	cd benchmarks && ../$(PY) bench.py --save ../results/benchmarks/engine.json

install: $(READY) ## make .venv and install everything into it
$(READY): requirements.txt constraints.txt pyproject.toml tools/install.sh
	@echo "== installing into .venv"
	PYTHON=$(PYTHON) tools/install.sh

clean: ## remove what was built, keep .venv
	rm -rf _build .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

veryclean: clean ## remove .venv too
	rm -rf .venv *.egg-info
