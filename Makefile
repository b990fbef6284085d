# make run    learn the embedded stream and show the live certificate
# make serve  the service with its pages, and something to watch
# make test   lint, types, import contracts, tests
# make test-long  experiments, documentation pages, a browser: what make test leaves out
# make test-portable  the numerical tests with other BLAS kernels and CPUs, shuffled, and file by file: an hour
# make docs   the documentation as a site, to be read in a browser
# make mutants  change each line that soundness rests on, and see that a test notices
# make fuzz   ten thousand strange files through the command line
# make torture  kill the service, cut its power, damage its files: an hour or two, root for some
# make test-gpu  the tests of the code for a GPU, on one if PyTorch sees it, and on its CPU
# make test-spark  the tests of Spark, with workers and drivers that are killed; needs Java 17
# make test-package  wheel and source archive, and every extra alone in an empty environment; PYTHON=another one
# make lowest  the tests with the lowest versions that pyproject.toml admits
# make results  every experiment and benchmark again from one commit, hours; DATA=folder of the data sets, ONLY=names, MINUTES=for now
# make bench  speed beside River, Vowpal Wabbit and scikit-learn, in one run
# Every target sets itself up; nothing but Python 3.11+, pip and make is needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
.DEFAULT_GOAL := help
.PHONY: help run serve test lint types check test-long test-portable mutants fuzz torture test-gpu test-spark test-package lowest docs results bench clean

help:
	@sed -n '1,16s/^# //p' Makefile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "folklearn needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# One stamp per set of extras: a target installs what it needs, once, until pyproject changes.
$(VENV)/.installed-%: $(BIN)/python pyproject.toml
	@echo "Installing folklearn[$*] into $(VENV); the first time this takes a minute or two"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

run: $(VENV)/.installed-cli,plots
	$(BIN)/folklearn run

serve: $(VENV)/.installed-serve
	$(BIN)/python docs/demo.py

test: lint types check

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.installed-dev
	$(BIN)/mypy

check: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long"

test-long: $(VENV)/.installed-dev,mlflow
	$(BIN)/python -m pytest -n 2 --dist worksteal -m long

test-portable: $(VENV)/.installed-dev
	$(BIN)/python -m tests.long.portable

test-gpu: $(VENV)/.installed-dev,gpu
	$(BIN)/python -m pytest tests/on_torch

mutants: $(VENV)/.installed-dev
	$(BIN)/python -m tests.mutants

fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tests.long.fuzz_files

torture: $(VENV)/.installed-dev
	$(BIN)/python -m tests.long.torture

# The page in a process of its own: Spark writes relative paths where its JVM was started.
test-spark: $(VENV)/.installed-dev,spark
	$(BIN)/python -m pytest tests/scale/test_spark.py tests/scale/spark_kills.py
	$(BIN)/python -m pytest 'tests/test_docs.py::test_a_page_runs_as_printed[guide/spark.md]'

test-package: $(VENV)/.installed-dev
	$(BIN)/python -m tests.long.package --python $(PYTHON)

# An environment of its own, beside the other: it has the lowest versions and nothing newer.
$(VENV)-lowest/.installed: $(BIN)/python pyproject.toml tests/lowest.py
	$(PYTHON) -m venv --clear $(VENV)-lowest
	$(BIN)/python tests/lowest.py > $(VENV)-lowest/constraints.txt
	@echo "Installing the lowest versions into $(VENV)-lowest; this takes minutes"
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint $(VENV)-lowest/constraints.txt --editable '.[dev]'
	@touch $@

# Old packages warn of newer ones that they meet: here a warning is no error.
lowest: $(VENV)-lowest/.installed
	PYTEST_ADDOPTS='-W default' $(VENV)-lowest/bin/python -m pytest -n 2 --dist worksteal

docs: $(VENV)/.installed-docs
	@rm -rf docs/_build docs/api/generated
	$(BIN)/python -m sphinx -W --keep-going --quiet docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

results: $(VENV)/.installed-dev
	$(BIN)/python -m experiments.reproduce $(if $(DATA),--data $(DATA)) $(if $(ONLY),--only $(ONLY)) $(if $(MINUTES),--minutes $(MINUTES))

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf $(VENV) $(VENV)-lowest .cache build dist docs/_build docs/api/generated
	find . -name __pycache__ -prune -exec rm -rf {} +
