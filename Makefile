# Every target does its own set-up: a virtual environment in .venv from the pinned requirements; for tests, lint, bench
# and fuzz also from those of requirements-dev.txt.
#
#   make run      one run of `chaos run --nemesis power-outage` (more options: make run ARGS="--seed 7")
#   make test     all tests but those marked `nightly` (some: make test ARGS="tests/harness/cli/test_cli.py -k bug")
#   make lint     ruff and mypy
#   make bench    measure throughput and times on this machine
#   make nightly  what takes longer than tests may: hours (some of it: make nightly ARGS="acks --seeds 1..3")
#   make protocol-table  drop each rule of PROTOCOL.md, and see its tests fail (ARGS="000-2.9" for some; "--changed")
#   make hostile  what clients of all kinds may send, beside one that works: a table (ARGS="--short"; parts of names)
#   make suite    the short suite of this project (others: make suite ARGS="suites/nightly.toml --jobs 2")
#   make kafka    runs of Apache Kafka whose verdicts are known (ARGS=--short for two of them)
#   make hashes   see that a change which should change nothing does not: simulated runs, what commands print, verdicts
#                 (after one that should: make hashes ARGS=--write)
#   make generations  the README's table of three generations anew, with its stories
#   make pictures the pictures of README.md and docs/ anew (needs Chromium)
#   make fuzz     fuzz what reads bytes of others, for FUZZ_SECONDS (1200)
#   make install  put chaos on the PATH: a link in /usr/local/bin, or in ~/.local/bin
#   make docker   install and start a Docker Engine (Debian, as root)
#   make clean    remove what dead runs left, and the virtual environment

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEVELOPING := $(VENV)/.developing

.PHONY: run test lint bench nightly hostile kafka suite protocol-table hashes generations pictures fuzz install docker clean lock
.DEFAULT_GOAL := run

run: $(INSTALLED)
	@$(BIN)/chaos run --nemesis power-outage $(ARGS)

HOSTS := tests/harness/runtimes/ssh

# Modules are compiled once, and not by each of the processes that tests start, whatever the environment says.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(DEVELOPING)
ifeq ($(ARGS),)
# Hosts over SSH by themselves: they mostly wait, and other tests compare the whole machine before and after.
	@failed=0; \
	$(BIN)/pytest --numprocesses 4 --dist loadscope --no-loadscope-reorder --durations 5 $(HOSTS) || failed=1; \
	$(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 15 --ignore $(HOSTS) || failed=1; \
	exit $$failed
else
	@$(BIN)/pytest $(ARGS)
endif

lint: $(DEVELOPING)
	@$(BIN)/ruff check .
	@$(BIN)/mypy --strict -p cluster_image -p checkers -p nemesis -p spark_history
	@$(BIN)/mypy -p harness -p workloads
	@$(BIN)/python -m tests.project.dependencies check

bench: $(DEVELOPING)
	@$(BIN)/python -m harness.bench $(ARGS)

nightly: $(DEVELOPING)
	@$(BIN)/python -m tests.nightly $(ARGS)

hostile: export PYTHONDONTWRITEBYTECODE :=
hostile: $(DEVELOPING)
	@$(BIN)/python -m tests.hostile $(ARGS)

suite: $(INSTALLED)
	@$(BIN)/chaos suite $(or $(ARGS),suites/short.toml --jobs 2)

kafka: $(DEVELOPING)
	@$(BIN)/python -m tests.nightly.kafka $(ARGS)

protocol-table: export PYTHONDONTWRITEBYTECODE :=
protocol-table: $(DEVELOPING)
	@$(BIN)/python -m tests.protocol_table $(ARGS)

hashes: $(DEVELOPING)
	@$(BIN)/python -m tests.hashes $(ARGS)

generations: $(DEVELOPING)
	@$(BIN)/python -m tests.project.generations $(ARGS)

pictures: $(DEVELOPING)
	@$(BIN)/python -m tests.project.pictures

FUZZ_SECONDS ?= 1200
fuzz: $(DEVELOPING)
	@$(BIN)/python -m pip install --quiet --requirement tests/fuzz/requirements.txt
	@$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(ARGS)

install: $(INSTALLED)
	@folder=$$([ -w /usr/local/bin ] && echo /usr/local/bin || echo $(HOME)/.local/bin); \
	    mkdir -p $$folder && ln -sfn $(CURDIR)/$(BIN)/chaos $$folder/chaos && echo "chaos is now $$folder/chaos"

docker:
	@bash harness/runtimes/docker/install_engine.sh

clean:
	@if [ -x $(BIN)/chaos ]; then $(BIN)/chaos clean; fi
	@rm -rf $(VENV) *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz

$(INSTALLED): requirements.txt pyproject.toml harness/runtimes/make_venv.sh
	@bash harness/runtimes/make_venv.sh $(PYTHON) $(VENV)
	@touch $@
	@echo "chaos is $(BIN)/chaos; to call it chaos: . $(BIN)/activate, or make install"

$(DEVELOPING): $(INSTALLED) requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt
	@$(BIN)/python -m tests.spark_history.spark.spark_archive || echo "Tests will start Spark without an archive of its classes."
	@touch $@

# Needs uv. The node image has a lock of its own, held to the same versions. docs/dependencies.md says what they are.
lock:
	$(LOCK) --extra build --upgrade --output-file requirements.txt pyproject.toml
	$(LOCK) --extra build --extra dev --constraint requirements.txt --upgrade \
	    --output-file requirements-dev.txt pyproject.toml
	$(LOCK) --constraint requirements.txt --upgrade \
	    --output-file cluster_image/container/requirements.txt cluster_image/container/requirements.in
	$(BIN)/python -m tests.project.dependencies write

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
    --custom-compile-command "make lock" --no-emit-index-url --no-emit-find-links
