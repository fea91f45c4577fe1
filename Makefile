# Everything a newcomer or CI runs. `make demo` and `make test` set up their own environment first.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test slow campaign check golden format bench gpu-check tables outside docs dist

setup: $(READY)

# The pins make pip take one known torch instead of the newest with its gigabytes of CUDA packages.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[plots,cpu,dev]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/rhumb solve examples/harbour100.tsp --seconds 10 --device cpu --output out --plot

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

# Real servers, a real browser, a real Ray cluster. Without chromium (Debian: apt-get install chromium)
# the tests of the page are skipped.
slow: $(READY)
	$(BIN)/python -m pytest -m slow

# Tries to break what the package promises, for SECONDS in all (docs/internals/campaigns.md).
SECONDS ?= 600
campaign: $(READY)
	nice $(BIN)/python -m tools.campaigns --seconds $(SECONDS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/python tools/golden.py compare

# Hashes of what the code computes, as long as the redesign runs: about one minute on two cores.
golden: $(READY)
	$(BIN)/python tools/golden.py compare

# Two minutes on two cores; started again it goes on where it stopped.
bench: $(READY)
	$(BIN)/rhumb bench suites/quick.toml --device cpu
	$(BIN)/rhumb report results/quick.jsonl

# Parity and rates of all kernels, on a machine with an NVIDIA GPU: three minutes.
gpu-check: $(READY)
	$(BIN)/python tools/gpu_check.py

# Every table of the reproduction, on a machine with a GPU: what fits into SECONDS (600 if not given),
# and the rest in further calls (docs/guide/bench.md).
tables: $(READY)
	$(BIN)/python -m tools.tables --seconds $(SECONDS)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The example of an outside package: installed with pip, trained for a moment, and solved.
outside: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt ./examples/outside_problem
	rm -rf out/outside
	$(BIN)/rhumb train examples/outside_problem/op.toml --set updates=3 --device cpu --out out/outside
	$(BIN)/rhumb solve examples/outside_problem/island30.op --policy out/outside/policy.safetensors --attempts 32 --device cpu
	$(BIN)/python -m pip uninstall --quiet --yes rhumbline-orienteering

# The documentation as a site: build/site/index.html. It needs no network once it is installed.
DOCS_READY := $(VENV)/.ready-docs

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $(DOCS_READY)

docs: $(DOCS_READY)
	$(BIN)/python -m sphinx -n -W --keep-going --fresh-env --quiet --builder html docs build/site

# Wheels and sdists of the package and of the research weights, as a release has them.
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m hatchling build --directory dist
	cd packages/research-weights && $(abspath $(BIN))/python -m hatchling build --directory $(CURDIR)/dist
