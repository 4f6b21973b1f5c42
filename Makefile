# make train and make test do all their own set-up; `make help` lists the rest.
SHELL := /bin/bash
BUILD ?= $(shell nvidia-smi -L 2>/dev/null | grep -q GPU && echo gpu || echo cpu)
PY := .venv/bin/python
ARGS ?=
# What `make train` trains on a GPU without ARGS: a pretrained model from the package index.
GPU_RECIPE := policy=smollm2 env=length
# Tests wait for others at times: one worker more than there are cores.
WORKERS ?= $(shell cores=$$(nproc); echo $$((cores < 8 ? cores + 1 : 8)))
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS)
# Tests of a cluster make machines of network namespaces.
IPROUTE2 := command -v ip >/dev/null || apt-get install -y -qq --no-install-recommends iproute2
# Compiled modules are kept: else each of a run's processes compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup develop train serve bench quick test nightly gpu chaos check tiny figures engine engine-stop browser doctor wheel clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup:  ## virtual environment, system packages (as root), what a user needs; BUILD=cpu|gpu
	@locks/install.sh $(BUILD)

develop:  ## setup, and what tests and checks need
	@locks/install.sh $(BUILD) dev

train: setup  ## train the tiny policy in real sandboxes, on a GPU a pretrained model; ARGS="env=gui trainer.steps=3"
	@case "$(ARGS)" in *gui*) locks/browser.sh ;; esac
	@$(PY) -m clawrl_gym.train $(or $(ARGS),$(if $(filter gpu,$(BUILD)),$(GPU_RECIPE)))

serve: setup  ## serve a policy that learns from live conversations; ARGS="gateway.port=8808"
	@$(PY) -m clawrl_gym.serve $(ARGS)

bench: setup  ## recipes side by side; ARGS="experiment=personal_binary,personal_hybrid seeds=3"
	@$(PY) -m clawrl_gym.bench $(ARGS)

quick: develop  ## tests that need no server, browser or engine; ROOM=store takes seconds, all take minutes
	@$(PYTEST) --dist worksteal -m "not (vllm or ray or docker or browser or openclaw or gpu or slow)" $(if $(ROOM),tests/$(ROOM)) $(ARGS)

test: develop  ## every test, in about 28 minutes on two cores; ARGS="-k store"; installs Chromium and a Docker engine as root
	@[ "$$(id -u)" -ne 0 ] || { locks/browser.sh && docker/engine.sh install && $(IPROUTE2); }
	@$(PYTEST) --dist loadfile --no-loadscope-reorder $(ARGS)

nightly:  ## every test and the long forms of some
	@$(MAKE) --no-print-directory test ARGS="--nightly $(ARGS)"

gpu: develop  ## the tests that need a CUDA device (make test runs them too, where one is)
	@$(PY) -m pytest tests/gpu $(ARGS)

chaos: develop  ## faults at random moments of real runs, and what must hold after each; ARGS="--faults 20"
	@PYTHONPATH=. $(PY) bench/chaos.py $(ARGS)

check: develop  ## formatting, lint, layers, types
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/lint-imports --no-logo --no-cache
	@.venv/bin/mypy

tiny: setup  ## make the shipped tiny policy again by its seeded recipe
	@$(PY) -m tools.tiny_policy $(ARGS)

figures: setup  ## which figures in README and docs are older than what they were measured on
	@$(PY) -m tools.figures

engine:  ## a Docker engine of this folder's own, as root, where none runs; runs here find it
	@COMMAND="make engine" docker/engine.sh install
	@docker/engine.sh start .docker

engine-stop:  ## end it; its images stay
	@COMMAND="make engine-stop" docker/engine.sh stop .docker

browser: setup  ## Chromium for browser tasks, where none is
	@locks/browser.sh

doctor: setup  ## what this machine can run, what is missing and what mends it
	@$(PY) -m clawrl_gym.doctor $(ARGS)

wheel: setup  ## the package as a wheel, below dist/
	@$(PY) -m hatchling build -t wheel

clean:  ## remove the virtual environment and caches; runs/ stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
