PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: up test check format bench bench-detection fuzz clean

up: $(VENV)/.cluster  ## broker, agent and worker on this machine, with a live view
	$(BIN)/reveal up

test: $(VENV)/.dev  ## every test that this machine can run
	$(BIN)/python -m pytest

check: $(VENV)/.dev  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev  ## what everything costs, each beside what it is compared with
	$(BIN)/python -m tests.bench

bench-detection: $(VENV)/.dev  ## how well detectors rank what is odd, on labelled telemetry
	$(BIN)/python -m tests.bench detection

fuzz: $(VENV)/.dev  ## five minutes of damage to all that the agent reads
	$(BIN)/python -m tests.producers.fuzz --seconds 300

# What Numba compiled for a bench lies in __pycache__.
clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.cluster: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cluster]'
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cluster,dev]'
	@touch $@ $(VENV)/.cluster
