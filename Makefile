# make demo and make test do all the set-up themselves; both need Python 3.11 or newer, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FLOWER_READY := $(VENV)/.ready-flower
BROWSER_READY := $(VENV)/.ready-browser
DEMO := build/demo

# These are tested by test-flower: they need Flower, and the whole machine; and by test-browser.
ELSEWHERE := --ignore=tests/flower --ignore=src/bonafed/flower --ignore=tests/browser

# Tests run in two processes; one thread each, or the threads of NumPy stand in each other's way.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
# Tests start many interpreters, which shall not compile the package every time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-processors test-flower deep-flower test-browser lint types rooms pytest deep campaign docs \
    benchmarks clean

# The walk of the README: a contract is published, verified, settled, trained under and accounted for; then
# every mechanism that applies, on the same federation. About a minute on two cores.
TERMS := --prior uniform:0.5,1.5 --clients 5 --rounds 20 --budget 50
demo: $(READY)
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	$(BIN)/bonafed quote sampling $(TERMS) --plot $(DEMO)/contract.png --save $(DEMO)/contract.json
	$(BIN)/bonafed verify $(DEMO)/contract.json --cost 0.95
	$(BIN)/bonafed settle $(DEMO)/contract.json --reports docs/demo/reports.csv --save $(DEMO)/terms.csv
	$(BIN)/bonafed train docs/demo/federation.toml --contract $(DEMO)/contract.json \
	    --reports docs/demo/reports.csv --folder $(DEMO)/run
	$(BIN)/bonafed statement $(DEMO)/run --client ada --csv $(DEMO)/ada.csv
	$(BIN)/bonafed audit sampling $(TERMS) --plot $(DEMO)/audit.png
	@echo
	@echo "The same audit of a contract that pays what is asked; it is meant to fail:"
	-@$(BIN)/bonafed audit sampling --variant pay-as-bid $(TERMS) --plot $(DEMO)/pay-as-bid.png || true
	$(BIN)/bonafed report $(DEMO)/contract.json --save $(DEMO)/contract.html
	$(BIN)/bonafed compare docs/demo/federation.toml --folder $(DEMO)/compared --plot $(DEMO)/compare.png \
	    --report $(DEMO)/report.html
	@echo
	@echo "Open $(DEMO)/report.html and $(DEMO)/contract.html in a browser; figures are in $(DEMO)/"

# Types are checked beside the tests: the first time they take half a minute of one core.
test: $(READY)
	@$(MAKE) --no-print-directory -j 2 lint types rooms pytest

# Tests that compare computed numbers, as processors with fewer instructions compute them. The first of the
# settings is this processor as it is; PROCESSORS=--together leaves it out, and tries others together.
test-processors: $(READY)
	$(BIN)/python -m tests.processors $(PROCESSORS)

# Real federations on this machine: a SuperLink with TLS and authentication, nodes, kills; Ray simulations.
# Each file's federation is shared by its tests, so a group of tests stays in one process; groups begin in the
# order of tests/flower/conftest.py, not of how many tests they have.
FLOWER := -q -n 2 --dist loadgroup --no-loadscope-reorder tests/flower src/bonafed/flower
test-flower: $(FLOWER_READY)
	$(BIN)/pytest $(FLOWER)

# The same, and every mechanism in a Ray simulation.
deep-flower: $(FLOWER_READY)
	$(BIN)/pytest -m "deep or not deep" $(FLOWER)

# Pages in a real browser, Debian's Chromium; without one they are skipped, and with CI=true they fail.
test-browser: $(BROWSER_READY)
	$(BIN)/pytest -q tests/browser

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(READY)
	$(BIN)/mypy

rooms: $(READY)
	$(BIN)/lint-imports --no-logo

pytest: $(READY)
	$(BIN)/pytest -q -n 2 --dist worksteal $(ELSEWHERE)

# All tests: also the long searches (marked `deep`), and with far more random examples.
deep: $(READY)
	HYPOTHESIS_PROFILE=deep $(BIN)/pytest -q -n 2 --dist worksteal -m "deep or not deep" $(ELSEWHERE)

# Mutated input, kills, damaged files and failing disks, as docs/reliability.md says: 43 minutes of CPU.
campaign: $(READY)
	$(BIN)/python -m tests.campaign

# Rewrite what the code generates into the documentation: the command-line page and the pictures.
docs: $(READY)
	$(BIN)/python docs/generate.py

benchmarks: $(READY)
	$(BIN)/python benchmarks/economics.py
	$(BIN)/python benchmarks/jsam.py
	$(BIN)/python benchmarks/faithful.py
	$(BIN)/python benchmarks/faithful_exchanges.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bonafed needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[train,dev]'
	@touch $@

$(FLOWER_READY): $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[train,flower,dev]'
	@touch $@

$(BROWSER_READY): $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[train,browser,dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
