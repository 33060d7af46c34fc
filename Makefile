# Every target works from a fresh clone: the environment is made on first use, in .venv.
#
#   make PYTHON=/path/to/python3 demo     another interpreter for .venv (3.11 or newer)
#   make PORT=5001 ui                     another port

.DEFAULT_GOAL := help
.PHONY: help demo demo-eagle3 test test-slow test-isa test-all check docs bench ui audit venv clean
.DELETE_ON_ERROR:

PYTHON ?=
PORT ?= 5000
BIN := .venv/bin
VENV := .venv/.installed

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV) ## Run the whole experiment on the demo pair: reports/demo/index.html
	@$(BIN)/specloss run config/demo.yaml

demo-eagle3: $(VENV) ## The same on trees that an EAGLE-3 head drafts: reports/demo_eagle3/index.html
	@$(BIN)/specloss run config/demo_eagle3.yaml

# One thread in each process: more of them wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test: $(VENV) ## Run the tests, but for those marked slow
	@$(PYTEST) -m "not slow"

test-slow: $(VENV) ## Run the tests marked slow
	@$(PYTEST) -m slow $(ARGS)

# What torch itself, oneDNN, MKL and OpenBLAS (NumPy) may use, one line a processor
test-isa: $(VENV) ## Run the numerical tests as on processors without AVX, and without AVX-512
	@set -e; for isa in "default SSE41 SSE4_2 Nehalem" "avx2 AVX2 AVX2 Haswell"; do set -- $$isa; \
		export ATEN_CPU_CAPABILITY=$$1 ONEDNN_MAX_CPU_ISA=$$2 MKL_ENABLE_INSTRUCTIONS=$$3 OPENBLAS_CORETYPE=$$4; \
		echo "Instruction sets: torch $$1, oneDNN $$2, MKL $$3, OpenBLAS $$4"; \
		$(PYTEST) -m "not slow" tests/unit/decoding tests/unit/verification tests/unit/models tests/unit/making tests/unit/screen; \
	done

test-all: test test-slow test-isa ## Run every test, for the night

check: $(VENV) ## Check style: ruff, ruff format, snakefmt
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/lint-imports

docs: $(VENV) ## Build the documentation site strictly: site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "Open site/index.html"

bench: $(VENV) ## Measure decoding speed against transformers, and what the workflow adds
	@$(BIN)/python -m specloss.speed
	@$(BIN)/python -m specloss.speed --trees
	@$(BIN)/python -m specloss.speed --workflow

ui: $(VENV) ## Show the runs in the MLflow UI on http://127.0.0.1:5000 (PORT=...); it says the password
	@$(BIN)/specloss ui --port $(PORT)

audit: $(VENV) ## Ask the advisory service about known faults in the locked packages (needs the network)
	@$(BIN)/python envs/audit.py

venv: $(VENV) ## Make .venv from the lock files in envs (the other targets do it by themselves)

# .installing marks a .venv that is being filled. Found at the start, it means that an earlier try was cut short: begin
# again from nothing. It becomes the stamp at the end, with the time of the start, so that a lock file that changed
# meanwhile counts as newer.
$(VENV): $(wildcard envs/*.lock) envs/install.py pyproject.toml
	@set -e; \
	for python in $(or $(PYTHON),python3.11 python3 python3.12 python3.13); do \
		if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then \
			found=$$python; break; \
		fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "specloss needs Python 3.11 or newer with its venv module; tried: $(or $(PYTHON),python3.11 python3 python3.12 python3.13)." \
			"Install it, or name one: make PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi; \
	if [ -e .venv/.installing ]; then rm -rf .venv; fi; \
	mkdir -p .venv; touch .venv/.installing; \
	echo "Installing into .venv with $$found (a few minutes, once)"; \
	"$$found" -m venv .venv; \
	$(BIN)/python envs/install.py; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	mv .venv/.installing $(VENV)

clean: ## Remove the demos' outputs and all caches; keep .venv and other experiments
	rm -rf results/demo reports/demo results/demo_eagle3 reports/demo_eagle3 .pytest_cache .ruff_cache .hypothesis
	find src tests workflow -name __pycache__ -type d -prune -exec rm -rf {} +
