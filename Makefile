# `make bench`: measure this machine and draw what was found; `make bench SWEEP=gemm/square BUDGET=60` or
# `make bench SUITE=core` choose. `make test`: the tests. `make setup`: neither.
# `make test-deep`: every test there is, with random numbers of its own; `make test` runs the same at every run.
# `make figures`: the figures of README and docs, and the scores, again, from the committed runs alone.
# `make public`: what others have measured on GPUs, and what it says of the guides' rules.
# `make site`: all of this as static pages.
# Each makes its own virtual environment in .venv; the system's Python is only asked to create it.
# With PYTHON_AS_IS=/usr/bin/python3 they use that Python with what it has instead, and install nothing.

PYTHON ?= python3
VENV := .venv
ENVIRONMENT := $(VENV)/.ready
RUN := $(if $(PYTHON_AS_IS),$(PYTHON_AS_IS),$(VENV)/bin/python)
READY := $(if $(PYTHON_AS_IS),as-is,$(ENVIRONMENT))
FIGURES := figures
EXTRAS := all
CHOICE = $(if $(SUITE),--bench-suite $(SUITE)) $(SWEEP:%=--bench-sweep %) $(if $(BUDGET),--bench-budget $(BUDGET))

REFERENCE := results/reference
CPU_ALL := $(REFERENCE)/cpu-intel-xeon-2-core/20261122T004112Z-499eb026a141.parquet
CPU_DENSE := $(REFERENCE)/cpu-intel-xeon-2-core/20261121T154800Z-478f81f2d1f8.parquet
CPU_GEMM := $(REFERENCE)/cpu-intel-xeon-2-core/20261122T005120Z-499eb026a141.parquet
DRAWN := $(FIGURES)/readme

.PHONY: setup bench test test-deep figures public clean as-is

setup: $(READY)

# The doctor's exit code 1, degraded, stops nothing: the rows will say so themselves.
bench: EXTRAS :=
bench: $(READY)
	@$(RUN) -m bench doctor --quick || [ $$? -eq 1 ]
	@begun=$$(mktemp); $(RUN) -m pytest bench/ --benchmark $(CHOICE); status=$$?; \
	new=$$(find results -maxdepth 2 -name '*.parquet' -newer "$$begun" | head -n 1); rm -f "$$begun"; \
	if [ -n "$$new" ]; then \
		run=$$(basename "$$(dirname "$$new")")/$$(basename "$$new" .parquet); \
		$(RUN) -m plots "$$new" && ln -sfn "$$run" $(FIGURES)/latest && $(RUN) -m plots report "$$new" && \
		echo "open $(FIGURES)/latest/report.html in a browser; the figures are beside it"; \
	fi; exit $$status

# The processes of pytest and their many children share the bytecode of our modules, even where the environment
# turns it off: without it each compiles all of them again.
test test-deep: export PYTHONDONTWRITEBYTECODE :=

# Mypy and `pytest bench` are among the tests, so that no processor waits for them. A file's tests share what they
# set up, so they stay in one process; the longest files begin (tests/slowest.txt).
test: EXTRAS := dev
test: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m pytest tests -n auto --dist loadfile --no-loadscope-reorder

# All of what `make test` draws a few cases of, simulations and compile tables: for nights.
test-deep: EXTRAS := dev
test-deep: $(READY)
	$(RUN) -m pytest tests --deep -n auto

figures: $(READY)
	rm -rf $(DRAWN)
	$(RUN) -m plots $(REFERENCE)/tour -o $(DRAWN)/tour
	$(RUN) -m plots $(REFERENCE)/public -o $(DRAWN)/public
	$(RUN) -m bench import csv $(REFERENCE)/published/nvidia_a100_tile_quantization.csv --bench-results $(DRAWN)/published
	$(RUN) -m plots $(DRAWN)/published --calibrated-by $(REFERENCE)/public -o $(DRAWN)/nvidia
	$(RUN) -m plots rules $(REFERENCE)/rules.json -o $(DRAWN)
	cp $(DRAWN)/rules.png docs/figures/rules.png
	cp $(DRAWN)/tour/roofline-float32.png docs/figures/roofline-cpu.png
	cp $(DRAWN)/nvidia/gemm/tile_quantization-quantization.png docs/figures/tile-quantization.png
	cp $(DRAWN)/public/compared/generations.png docs/figures/generations.png
	$(RUN) -m plots score $(REFERENCE)/public $(CPU_ALL) $(CPU_GEMM) $(CPU_DENSE) --json $(REFERENCE)/scores.json

# The real CUDA builds of PyTorch and Triton, without a GPU (CONTRIBUTING.md): about 10 GB of wheels the first
# time, so no part of `make test`. One environment: make contract ENVIRONMENTS=torch-2.11.0
.PHONY: contract contract-clean
ENVIRONMENTS :=

contract:
	$(PYTHON) -m tests.contract $(ENVIRONMENTS)

contract-clean:
	rm -rf .contract

clean: contract-clean

# Public repositories are cloned at the commits that bench/interop/sources pins, each only its files;
# `make public SOURCES=FOLDER` takes those in FOLDER/NAME.
SOURCES :=

public: $(READY)
	@$(if $(PYTHON_AS_IS),,$(RUN) -m pip install --quiet --constraint constraints.txt aiconfigurator-core || \
		echo "The package aiconfigurator-core cannot be installed: its timings of matrix products are left out.")
	@$(RUN) -m bench import all $(or $(SOURCES),results/sources --clone); imported=$$?; \
	[ -d results/imported ] || exit $$imported; \
	echo "What the guides' rules say on these rows: half a minute"; \
	sample=$$([ -f results/imported/aiconfigurator.txt ] || echo $(REFERENCE)/public); \
	$(RUN) -m bench claims results/imported $$sample $(REFERENCE)/engines --by rule --json \
		> results/imported/rules.json && \
	$(RUN) -m plots rules results/imported/rules.json && exit $$imported

# Reports for any browser in site/, with an index; of all public times after `make public`.
.PHONY: site
site: $(READY)
	$(RUN) -m plots site -o site

OLD_PYTHON = $(1) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "roofbench needs Python 3.11 or later; $(1) is $$($(1) --version 2>&1). Give another: make $(2)=python3.12"; exit 2; }

# Which build of torch, by the driver, before anything is downloaded. PyPI's, of CUDA 13.0, needs driver 580 and has
# code for Turing to Blackwell; that of CUDA 12.6 needs driver 525 and has code for Maxwell to Hopper (pytorch's
# RELEASE.md for 2.13; table 1 of https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html).
# Without a GPU it is the one without CUDA. pip prefers a build of the index that is given here to PyPI's.
GPUS = nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader 2> /dev/null
TORCH = awk -F ', ' -v index_of="--extra-index-url https://download.pytorch.org/whl/" ' \
	function say(text) { print text > "/dev/stderr" } \
	/^[0-9][0-9.]*, [0-9]+[.][0-9]/ { \
		if (!count++ || $$1 + 0 < driver) driver = $$1 + 0; \
		if (count == 1 || $$2 + 0 < oldest) oldest = $$2 + 0; \
		if ($$2 + 0 > newest) newest = $$2 + 0 \
	} \
	END { \
		if (!count) { \
			say("nvidia-smi lists no GPU: torch without CUDA is installed, where an index has it."); \
			print "torch", index_of "cpu" \
		} else if (driver >= 580 && oldest >= 7.5) print "torch nvmath-python"; \
		else if (driver >= 525 && oldest >= 5 && newest < 10) { \
			say("PyPI'"'"'s torch needs driver 580 and compute capability 7.5; here are " driver " and " oldest \
				": that of CUDA 12.6 is installed instead."); \
			print "torch nvmath-python", index_of "cu126" \
		} else { \
			say("error: no build of torch runs on driver " driver " with compute capability " oldest " to " newest \
				". Update the driver, or use a Python that has a torch of its own: " \
				"make bench PYTHON_AS_IS=/usr/bin/python3"); \
			exit 2 \
		} \
	}'
PIP = $(VENV)/bin/python -m pip install --quiet --constraint constraints.txt

# torch comes first and alone: an index that cannot be reached is asked about few packages.
$(ENVIRONMENT): export PIP_DISABLE_PIP_VERSION_CHECK := 1
$(ENVIRONMENT): pyproject.toml constraints.txt
	@$(call OLD_PYTHON,$(PYTHON),PYTHON)
	@echo "Installing roofbench's Python packages into $(VENV): minutes the first time, nothing outside it."
	$(PYTHON) -m venv $(VENV)
	@$(GPUS) | $(TORCH) > $(VENV)/.wanted
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(PIP) --quiet --retries 1 $$(cat $(VENV)/.wanted)
	$(PIP) '.[dev]'
	@$(VENV)/bin/python -m bench.environment.search_path
	@touch $(ENVIRONMENT)

as-is:
	@$(call OLD_PYTHON,$(RUN),PYTHON_AS_IS)
	@$(RUN) -m bench.environment.dependencies $(EXTRAS)

clean:
	rm -rf $(VENV) $(FIGURES) site
