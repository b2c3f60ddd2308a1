# Every verb does all the set-up that it needs; what was done is remembered in .setup/.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

ARGS ?=
PROTOC := python -m grpc_tools.protoc -I protos
PROTOS := $(wildcard protos/barnabas/messages/*.proto)
STUBS := services/barnabas/messages
NODE_FOLDERS := tests/integration/clients/kafkajs tests/observability/grafana_schema
CHECKS := tests/test_tidy.py tests/test_programs.py tests/test_makefile.py
# Two processes, as tests wait half of their time (tests/README.md); and `check` has run its own.
ALL_TESTS := -n 2 --dist loadfile --no-loadscope-reorder $(addprefix --ignore=,$(CHECKS))
COMPOSE_IMAGES := etcd redis prometheus collector grafana

.PHONY: help run test fresh check demo bench simulate simulate-mutants chaos suites chart images containers kubernetes protos format lock clean check-protos

help: ## List the verbs
	@echo "make VERB [ARGS=\"...\"]"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

run: .setup/runtime ## Start a cluster on localhost:9092 (ARGS="--port 19092 --nodes 3"); Ctrl-C stops it
	@exec barnabas up $(ARGS)

# What is fetched does not need one another; of what installs packages of the system, one at a time can.
test: .setup/dev .setup/programs ## Check, then run all tests (ARGS="tests/unit -k fetch")
	@$(MAKE) -j 3 .setup/node .setup/chart-checks jars
	@$(MAKE) check
	@CI=true exec pytest $(or $(ARGS),$(ALL_TESTS))

fresh: ## Run `make run` and `make test` on a bare Debian, made here (as root; ARGS="tests/unit" shortens it)
	@exec deploy/setup/fresh.sh $(ARGS)

check: .setup/dev check-protos ## Lint, formatting, types, layers, stale messages, tidiness: all that CI holds
	ruff check
	ruff format --check
	mypy
	lint-imports --no-logo
	pytest -q $(CHECKS)

demo: .setup/pipelines ## 336,776 real flights through the cluster and Spark: a table and a plot
	@deploy/setup/programs.sh java mvn
	@deploy/jars/fetch.sh spark-kafka build/jars/spark-kafka
	@exec deploy/demo.sh $(ARGS)

bench: .setup/dev ## Measure beside Apache Kafka: throughput, latency, start, memory (see bench/README.md)
	@deploy/setup/programs.sh java mvn
	@deploy/jars/fetch.sh kafka-tools build/jars/kafka-tools
	@exec python bench/run.py $(ARGS)

simulate: .setup/dev ## Run a whole cluster in one process under seeds (ARGS="--seeds 0-999"); see tests/simulation
	@exec python tests/simulation/run.py $(ARGS)

simulate-mutants: .setup/dev ## Look for planted faults in the simulation: each is found, or it has a hole (ARGS="--seeds 0-99 --seconds 600")
	@exec python tests/simulation/mutants.py $(ARGS)

chaos: .setup/dev .setup/programs ## Do faults to clusters of real processes under real clients (ARGS="--faults 1000"); see tests/chaos
	@deploy/jars/fetch.sh kafka-tools build/jars/kafka-tools
	@exec python tests/chaos/run_chaos.py $(ARGS)

suites: .setup/dev ## Run other clients' own test suites against a cluster (tests/suites)
	@deploy/setup/programs.sh go java mvn
	@deploy/jars/fetch.sh kafka-tools build/jars/kafka-tools
	@exec python tests/suites/run.py $(ARGS)

chart: .setup/dev .setup/programs .setup/chart-checks ## Check the Helm chart: lint, Kubernetes' schemas, pod security, a run of its pods
	@exec pytest -q tests/chart $(ARGS)

images: ## Build the container images (ARGS="gateway storage"); starts an engine where there is none
	@eval "$$(deploy/engine/engine.sh start $(if $(ARGS),,$(COMPOSE_IMAGES)))" && docker/build.sh $(ARGS)

containers: .setup/dev .setup/programs ## Test the images and the compose file with a real engine (ARGS="-m 'not whole'")
	@CI=true exec pytest tests/containers -p no:randomly $(ARGS)

kubernetes: .setup/dev .setup/programs .setup/chart-checks ## Install the chart on a real Kubernetes, made here, and disturb it (as root)
	@deploy/kubernetes/programs.sh > /dev/null # here, for it may take longer than a test; it prints its folder
	@CI=true exec pytest tests/kubernetes -p no:randomly $(ARGS)

protos: .setup/dev ## Write the messages' classes anew from protos/
	$(PROTOC) --python_out=services --mypy_out=services $(PROTOS)

format: .setup/dev ## Format the code, mend what ruff can mend, make the chart's copies anew
	ruff check --fix
	ruff format
	python deploy/chart-checks/copy_files.py
	python deploy/chart-checks/values_table.py

lock: .setup/venv ## Resolve requirements.lock anew from pyproject.toml
	python -m venv .setup/uv
	.setup/uv/bin/pip install -q uv
	.setup/uv/bin/uv pip compile -q --universal --python-version 3.11 --all-extras --group dev --no-header --upgrade \
	    pyproject.toml -o requirements.lock

clean: ## Remove what verbs made: .venv, .setup, build, caches (never a data dir)
	rm -rf .venv .setup build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf demo-output $(addsuffix /node_modules,$(NODE_FOLDERS))
	find services tests bench -name __pycache__ -prune -exec rm -rf {} +

# What verbs stand on. A stamp is older than what it was made from when that changed. Any verb may be a clone's first, so
# every stamp makes sure of the folder.

.setup:
	@mkdir -p $@

.setup/venv: deploy/setup/venv.sh | .setup
	@deploy/setup/venv.sh .venv
	@touch $@

# Only what a cluster needs (with --etcd too), so that the first `make run` is quick.
.setup/runtime: .setup/venv pyproject.toml requirements.lock | .setup
	@echo "installing Barnabas into .venv"
	@python -m pip install -q -c requirements.lock -e '.[etcd]'
	@python -m compileall -q services
	@touch $@

.setup/pipelines: .setup/runtime | .setup
	@echo "installing what the pipelines need into .venv"
	@python -m pip install -q -c requirements.lock -e '.[pipelines]'
	@touch $@

# The lock lists everything: all extras and the tools of development.
.setup/dev: .setup/runtime | .setup
	@echo "installing what the tests need into .venv"
	@python -m pip install -q -r requirements.lock
	@touch $@ .setup/pipelines

# All that tests call by name; tests/test_programs.py compares.
.setup/programs: deploy/setup/programs.sh | .setup
	@deploy/setup/programs.sh etcd etcdctl go java javac kcat mvn node npm prometheus promtool
	@touch $@

.setup/node: .setup/programs $(addsuffix /package-lock.json,$(NODE_FOLDERS)) | .setup
	@for folder in $(NODE_FOLDERS); do npm ci --prefix "$$folder" --silent --no-audit --no-fund; done
	@touch $@

# helm, kubeconform and schemas for the chart's tests; install.sh itself keeps what is fresh, in build/.
.PHONY: .setup/chart-checks
.setup/chart-checks: .setup/dev .setup/programs
	@deploy/chart-checks/install.sh

.PHONY: jars
jars: .setup/programs
	@for name in spark-kafka kafka-tools kafka-streams flink-kafka; do deploy/jars/fetch.sh $$name build/jars/$$name; done

check-protos: .setup/dev
	@rm -rf build/protos && mkdir -p build/protos
	@$(PROTOC) --python_out=build/protos --mypy_out=build/protos $(PROTOS)
	@diff -r -x __init__.py -x README.md -x __pycache__ build/protos/barnabas/messages $(STUBS) > build/protos/diff \
	    || { echo "$(STUBS) is stale: run \`make protos\` (differences: build/protos/diff)" >&2; exit 1; }
