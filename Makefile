# `make` alone says what there is. Everything runs in .venv, which is made when first needed.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
PORT ?= 8000
SCALE ?= smoke
JOBS ?= 2
export JOBS
READY := .venv/.installed
PY := .venv/bin/python
FLOWER := .venv-flower/.installed
FLOWER_PY := .venv-flower/bin/python
PARTS ?= all
# one thread for each process: two processes with two threads each only get in each other's way
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest
NOTEBOOKS := $(wildcard notebooks/*.ipynb notebooks/*/*.ipynb)

.PHONY: help book serve test browser lint format unit notebooks site coverage exercises slides pdf experiment experiments trial colab links dist bench race scale soak oldest lock audit flower install clean veryclean

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

book: $(READY) ## build the book into _build/html (makes .venv first where it is missing)
	@echo "== the book"
	$(PY) -m devtools.book

serve: $(READY) ## serve the built book on http://127.0.0.1:8000 (PORT=... for another port)
	@test -f _build/html/index.html || $(MAKE) book
	@echo "Open http://127.0.0.1:$(PORT) (stop with Ctrl-C)"
	@$(PY) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

test: browser ## everything that continuous integration runs; sees to a browser first
	@$(PY) -m devtools.stages lint unit notebooks book site

browser: $(READY) ## find a Chromium or Chrome, or else get one (PFL_NO_BROWSER=1 does without)
	@echo "== a browser"
	@$(PY) -m devtools.browser

lint: $(READY) ## check style, types and notebook hygiene
	@echo "== style"
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m devtools.notebooks check
	$(PY) -m mypy

format: $(READY) ## put code and notebooks into the house style
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(PY) -m devtools.reference
	$(PY) -m devtools.notebooks clean
	$(PY) -m devtools.readme

unit: $(READY) ## the library's tests
	@echo "== unit tests"
	$(PYTEST) -n $(JOBS) --ignore tests/site --ignore tests/notebooks tests

notebooks: $(READY) ## run every notebook that is not up to date (papermill), compare its outputs (nbval)
	@echo "== notebooks"
	$(PY) -m devtools.runner
	$(PYTEST) -p devtools.nbval_ran --nbval-lax --nbval-sanitize-with tests/notebooks/nbval_sanitize.cfg $(NOTEBOOKS)
	$(PYTEST) -n $(JOBS) tests/notebooks

site: $(READY) ## look at every page of the built book in a real browser
	@echo "== the built book in Chromium"
	$(PYTEST) -n $(JOBS) tests/site

coverage: $(READY) ## which lines of the library the unit tests run; a page for each file in _build/coverage
	$(PYTEST) -n $(JOBS) --ignore tests/site --ignore tests/notebooks --cov --cov-report term:skip-covered --cov-report html tests
	@test -z "$${GITHUB_STEP_SUMMARY:-}" || $(PY) -m coverage report --skip-covered --format markdown >> "$$GITHUB_STEP_SUMMARY"

exercises: $(READY) ## notebooks with the chapters' exercises, with and without solutions (`make book` does it too)
	$(PY) -m devtools.teaching exercises

slides: $(READY) ## slides for each part, with figures of the built book (`make book` does it too)
	$(PY) -m devtools.teaching slides

pdf: $(READY) ## the whole book on paper: _build/book.pdf, and the formula sheet (needs the built book)
	@test -f _build/html/index.html || $(MAKE) book
	$(PY) -m devtools.pdf

experiment: $(READY) ## run one experiment: make experiment NAME=... SCALE=smoke
	$(PY) -m devtools.notebooks run "$(NAME)" SCALE=$(SCALE)

experiments: $(READY) ## run all experiments, resuming what was interrupted: SCALE=smoke, laptop or paper
	$(PY) -m devtools.notebooks run-all SCALE=$(SCALE)

trial: $(READY) ## the papers at their own scale: hours, stopped and resumed at will (ONLY="a;b" for some)
	$(PY) -m devtools.trial $(if $(ONLY),"$(subst ;," ",$(ONLY))")

colab: $(READY) ## run every notebook alone, with only what Colab brings (minutes; NAMES=... for some)
	$(PY) -m devtools.colab $(NAMES)

links: $(READY) ## broken links inside the built book, and where it points outside (ONLINE=1 asks there)
	$(PY) -m devtools.links $(if $(ONLINE),--online)

dist: $(READY) ## build what one would publish, into dist: archives; and their bill of materials
	$(PY) -m devtools.release

bench: $(READY) ## how fast training is, against the usual way (best on a quiet machine; PFLLIB=/path)
	$(PY) benchmarks/bench.py
	$(PY) benchmarks/precision.py

race: $(READY) ## this library beside its peers, same results first (PFLLIB=/path FLBENCH=/path; ARGS=--quick)
	$(PY) benchmarks/race/race.py $(or $(ARGS),--save results/benchmarks/race.json)

scale: $(READY) ## what more clients, parameters and participants cost, in seconds and memory
	$(PY) benchmarks/scale.py $(or $(ARGS),--save results/benchmarks/scale.json)

flower: $(FLOWER) ## run the methods over Flower, in .venv-flower (PARTS=cables; ISOLATE=--isolate: loopback only)
	$(FLOWER_PY) -m pytest tests/test_flower.py tests/test_cables.py
	$(FLOWER_PY) -m devtools.flower $(PARTS) $(ISOLATE)

$(FLOWER): $(READY)
	@echo "== installing Flower into .venv-flower: it wants an older \`packaging\` than the book's tools"
	$(PYTHON) -m venv .venv-flower
	grep -v '^packaging==' constraints.txt > .venv-flower/constraints.txt
	UV_FIND_LINKS="$${PIP_FIND_LINKS:-}" .venv/bin/uv pip install -q --python $(FLOWER_PY) \
	  -c .venv-flower/constraints.txt -e '.[flower]' pytest hypothesis || $(FLOWER_PY) -m pip \
	  install -q -c .venv-flower/constraints.txt -e '.[flower]' pytest hypothesis
	touch $@

soak: $(READY) ## the long tests: kills, fuzz, a full disk, hundreds of clients (two hours)
	$(PY) -m tests.soak.soak

oldest: $(READY) ## the library's central tests with the oldest versions it allows
	devtools/oldest.sh

lock: $(READY) ## write the hashes of all archives into requirements.lock (needs the package index)
	$(PY) -m devtools.lock

audit: ## ask whether a pinned version has a known weakness (needs internet; gets pip-audit if missing)
	@command -v pip-audit >/dev/null || $(PYTHON) -m pip install -q pip-audit
	pip-audit --requirement constraints.txt --no-deps --disable-pip

install: $(READY) ## make .venv and install everything into it (PFL_HASHES=1: only archives with locked hashes)
$(READY): requirements.txt constraints.txt pyproject.toml devtools/install.sh
	@echo "== installing into .venv"
	PYTHON=$(PYTHON) devtools/install.sh

clean: ## remove what was built, keep .venv
	rm -rf _build .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

veryclean: clean ## remove .venv too
	rm -rf .venv .venv-* *.egg-info
