# Every target does its own set-up: a virtual environment in .venv from the pinned requirements.
#
#   make run      one run of `chaos run --nemesis power-outage` (more options: make run ARGS="--seed 7")
#   make test     all tests                (some of them: make test ARGS="tests/test_plan.py -k rate")
#   make lint     ruff and mypy
#   make bench    measure throughput and times on this machine
#   make fuzz     fuzz what reads bytes of others, for FUZZ_SECONDS (1200)
#   make docker   install and start a Docker Engine (Debian, as root)
#   make clean    remove what dead runs left, and the virtual environment

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: run test lint bench fuzz docker clean lock
.DEFAULT_GOAL := run

run: $(INSTALLED)
	@$(BIN)/chaos run --nemesis power-outage $(ARGS)

# Containers by themselves: Docker now and then loses count of a network's endpoints when several are made at a time.
test: $(INSTALLED)
ifeq ($(ARGS),)
	@$(BIN)/pytest -m docker --durations 15
	@$(BIN)/pytest -m "not docker" --numprocesses 2 --dist loadfile --durations 15
else
	@$(BIN)/pytest $(ARGS)
endif

lint: $(INSTALLED)
	@$(BIN)/ruff check .
	@$(BIN)/mypy --strict -p cluster_image -p checkers -p nemesis -p spark_history
	@$(BIN)/mypy -p harness -p workloads

bench: $(INSTALLED)
	@$(BIN)/python -m harness.bench $(ARGS)

FUZZ_SECONDS ?= 1200
fuzz: $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --requirement tests/fuzz/requirements.txt
	@$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(ARGS)

docker:
	@bash harness/runtimes/docker/install_engine.sh

clean:
	@if [ -x $(BIN)/chaos ]; then $(BIN)/chaos clean; fi
	@rm -rf $(VENV) *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz

$(INSTALLED): requirements.txt pyproject.toml harness/make_venv.sh
	@bash harness/make_venv.sh $(PYTHON) $(VENV)
	@touch $@

# Needs uv. The node image has a lock of its own, held to the same versions.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --extra dev --upgrade --no-annotate \
	    --custom-compile-command "make lock" --no-emit-index-url --no-emit-find-links \
	    --output-file requirements.txt pyproject.toml
	uv pip compile --quiet --universal --python-version 3.11 --constraint requirements.txt --upgrade --no-annotate \
	    --custom-compile-command "make lock" --no-emit-index-url --no-emit-find-links \
	    --output-file cluster_image/requirements.txt cluster_image/requirements.in
