# `make bench`: measure this machine and draw what was found. `make test`: the tests. `make setup`: neither.
# `make figures`: the README's figures and the scorecard, again, from the committed runs alone.
# `make public`: NVIDIA's public timings of nine GPUs, and how far off the model is on all of them.
# Each makes its own virtual environment in .venv; the system's Python is only asked to create it.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
FIGURES := figures

REFERENCE := results/reference
CPU_ALL := $(REFERENCE)/cpu-intel-xeon-2-core/20261122T004112Z-499eb026a141.parquet
CPU_DENSE := $(REFERENCE)/cpu-intel-xeon-2-core/20261121T154800Z-478f81f2d1f8.parquet
CPU_GEMM := $(REFERENCE)/cpu-intel-xeon-2-core/20261122T005120Z-499eb026a141.parquet
DRAWN := $(FIGURES)/readme

# Tests that neither time anything nor start a run: they may share the processors.
TOGETHER := tests/kernels tests/plots tests/test_imports.py $(wildcard tests/test_workflow*.py) \
	$(wildcard $(addprefix tests/bench/test_,$(addsuffix .py,calibration ceilings change_points compare* coverage \
	datasheet doctor* duel efficiency exporting* fitness flags gathering history* importing* journal* levels* model nightly \
	our_sweeps predicting published quantization report_ceilings score several_gpus shard speedup structure sweep \
	transfer visits)))

.PHONY: setup bench test figures public clean

setup: $(READY)

# The doctor's exit code 1, degraded, stops nothing: the rows will say so themselves.
bench: $(READY)
	@$(RUN) -m bench doctor --quick || [ $$? -eq 1 ]
	@$(RUN) -m pytest bench/ --benchmark; status=$$?; \
	newest=$$(ls -t results/*/*.parquet 2>/dev/null | head -n 1); \
	if [ -n "$$newest" ]; then $(RUN) -m plots "$$newest" -o $(FIGURES) && echo "rows: $$newest" && echo "figures: $(FIGURES)/"; fi; \
	exit $$status

test: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m pytest -n auto $(TOGETHER)
	$(RUN) -m pytest tests bench $(addprefix --ignore=,$(TOGETHER))

figures: $(READY)
	rm -rf $(DRAWN)
	$(RUN) -m plots $(CPU_DENSE) -o $(DRAWN)/dense
	$(RUN) -m plots $(CPU_GEMM) -o $(DRAWN)/gemm
	$(RUN) -m plots $(REFERENCE)/public -o $(DRAWN)/public
	$(RUN) -m bench import csv $(REFERENCE)/published/nvidia_a100_tile_quantization.csv --bench-results $(DRAWN)/published
	$(RUN) -m plots $(DRAWN)/published --calibrated-by $(REFERENCE)/public -o $(DRAWN)/nvidia
	$(RUN) -m plots history $(REFERENCE)/nights -o $(DRAWN)/nights
	cp $(DRAWN)/nights/*/series/activations-*-relu-*.png docs/figures/history.png
	cp $(DRAWN)/gemm/gemm/square-duration.png docs/figures/square-duration.png
	cp $(DRAWN)/gemm/roofline-bfloat16.png docs/figures/roofline-cpu.png
	cp $(DRAWN)/dense/activations/backward-duration.png docs/figures/activations-backward.png
	cp $(DRAWN)/nvidia/gemm/tile_quantization-quantization.png docs/figures/tile-quantization.png
	cp $(DRAWN)/public/compared/generations.png docs/figures/generations.png
	cp $(DRAWN)/public/compared/scorecard.png docs/figures/scorecard.png
	cp $(DRAWN)/public/compared/transfer.png docs/figures/transfer.png
	$(RUN) -m plots score $(REFERENCE)/public $(CPU_ALL) $(CPU_GEMM) $(CPU_DENSE) --json $(REFERENCE)/scores.json

public: $(READY)
	$(RUN) -m pip install --quiet --constraint constraints.txt aiconfigurator-core
	$(RUN) -m bench import aiconfigurator
	$(RUN) -m plots score results/imported --json results/imported/scores.json

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "roofbench needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1). Give another: make PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

clean:
	rm -rf $(VENV) $(FIGURES)
