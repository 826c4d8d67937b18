# `make bench`: measure this machine and draw what was found. `make test`: the tests.
# Each makes its own virtual environment in .venv; the system's Python is only asked to create it.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
FIGURES := figures

.PHONY: bench test figures clean

bench: $(READY)
	@$(RUN) -m pytest bench/ --benchmark; status=$$?; \
	newest=$$(ls -t results/*/*.parquet 2>/dev/null | head -n 1); \
	if [ -n "$$newest" ]; then $(RUN) -m plots "$$newest" -o $(FIGURES) && echo "rows: $$newest" && echo "figures: $(FIGURES)/"; fi; \
	exit $$status

test: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m pytest -n auto tests/kernels
	$(RUN) -m pytest tests bench --ignore=tests/kernels

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "roofbench needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1). Give another: make PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

clean:
	rm -rf $(VENV) $(FIGURES)
