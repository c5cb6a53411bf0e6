# `make run` and `make test` do all the set-up on a fresh machine with Python 3.11+ and a C++ compiler.

PYTHON ?= python3
# A small CPU build where the package index has one of that name. For a GPU: make TORCH=torch run
TORCH ?= torch==2.13.0
BIN := .venv/bin
READY := .venv/.ready

.PHONY: run test check format clean

run: $(READY)
	$(BIN)/kbench verify
	$(BIN)/kbench time
	$(BIN)/kbench report

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff format --check kbench tests
	$(BIN)/ruff check kbench tests
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

format: $(READY)
	$(BIN)/ruff format kbench tests
	$(BIN)/ruff check --fix kbench tests

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kbench needs Python 3.11 or later; name one: make PYTHON=python3.12"; exit 1; }
	@command -v c++ >/dev/null || command -v g++ >/dev/null || { echo "kbench needs a C++ compiler: apt-get install g++"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv || { rm -rf .venv; echo "kbench needs Python's venv and pip: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet '$(TORCH)' || $(BIN)/python -m pip install --quiet torch
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf .venv build *.egg-info
