# kubeloop: `make demo` shows it at work, `make test` runs everything that CI runs. Both make their own .venv.
PYTHON ?= python3
VENV := .venv
SERVER_SUITES := tests/apiserver tests/conformance tests/kubectl
# The parts in which versions of Python differ most: containers, collection, decoding, event loops, TLS, a whole cluster.
SHORT_SUITES := tests/cache/store tests/cache/handlers tests/cache/persistence tests/codec tests/meta tests/serving tests/workqueue tests/blocking \
  tests/testing/test_local_cluster.py tests/testing/test_settled_cluster.py tests/testing/test_in_process.py
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The same on each version of Python: texts, sources, figures of the benchmark, types, which mypy checks for the oldest version whichever runs it,
# new projects but for one, which runs its tests and manifests (test_operator.py), the blocks of docs/, whose functions have other tests,
# the tables of attacks and rules of the proxy, which test texts, its comparisons with servers, and what NGINX does with a configuration.
SAME_ON_EACH := tests/tools tests/bench $(addprefix tests/docs/test_,links.py behaviours.py server_flags.py pages.py proxy_page.py) \
  tests/tasks/test_conventions.py tests/codegen/test_quality.py \
  $(addprefix tests/cli/new/test_,edits.py merging.py naming.py make.py add.py docs.py) \
  tests/attacks/proxy tests/proxy/rules $(addprefix tests/proxy/,test_idle_rules.py test_scenarios.py test_transcripts.py cached/test_on_servers.py) \
  tests/tap/test_report.py examples/bitcoin_tutorial examples/api_proxy_tutorial examples/what_client_go_sends_tutorial \
  $(addprefix examples/bitcoin_operator/tests/test_,manifests.py real_daemons.py) \
  $(addprefix examples/ingress_nginx/tests/test_,manifests.py quoting.py process.py static_nginx.py lua_mode.py lua_names.py \
  hostile_annotations.py annotations_on_nginx.py coming_from_ingress_nginx.py)
# Another Python beside it: make unit PYTHON=python3.14 VENV=.venv-3.14
# A worker for each processor; the tests of a file share one, and with it their server. WORKERS=0: all in one process.
WORKERS ?= auto
# What is compiled is kept, whatever the shell says: tests start hundreds of processes, and each would compile all of kubeloop again.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest -q --numprocesses $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-bitcoin demo-proxy demo-router test lint types layers structure unit unit-short unit-threads unit-clients test-disk test-real test-real-short test-proxy test-proxy-real conformance conformance-upstream conformance-gateway bench million soak soak-informers soak-controllers soak-server soak-proxy soak-tests fuzz mutants generate release lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "kubeloop needs Python 3.11 or newer; run: make PYTHON=python3.12 ...")'
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-build-isolation -e .
	@touch $@

setup: $(STAMP)  ## make .venv with locked dependencies

demo: $(STAMP)  ## server, kubectl and a controller at work, in under a minute
	@$(BIN)/python -m examples.sample_controller.demo

demo-bitcoin: $(STAMP)  ## the bitcoin operator with real daemons as process pods, about a minute (Linux; downloads a daemon once)
	@$(BIN)/python -m examples.bitcoin_operator.demo

demo-proxy: $(STAMP)  ## a proxy that changes what clients of an API server see, in 30 s (Linux)
	@$(BIN)/python -m examples.api_proxy.demo

demo-router: $(STAMP)  ## a Router between NGINX and the pods, by a rule of nine lines for kubeloop proxy, a minute (Linux, NGINX)
	@$(BIN)/python -m examples.traffic_router.demo

test: lint types layers structure unit  ## everything that CI runs

lint: $(STAMP)  ## ruff: rules and format; names and words (tools/names.json); docstrings (tools/docstrings.json)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m tools.names
	@$(BIN)/python -m tools.docstrings

types: $(STAMP)  ## strict type check of src, tests, examples, bench
	@$(BIN)/mypy

layers: $(STAMP)  ## import-linter: nothing imports upwards
	@$(BIN)/lint-imports --cache-dir .import_linter_cache > .import_linter_cache.log 2>&1 || { cat .import_linter_cache.log; exit 1; }
	@tail -n 3 .import_linter_cache.log

structure: $(STAMP)  ## print size, importers and cycles of modules; PACKAGE=cache lists those that want a change
	@$(BIN)/python -m tools.structure $(PACKAGE)

unit: $(STAMP)  ## pytest
	@$(PYTEST)

unit-short: $(STAMP)  ## the suites in which versions of Python differ most, about a minute
	@$(PYTEST) $(SHORT_SUITES)

unit-threads: $(STAMP)  ## the suites of the parts that may be called from any thread, for free-threaded builds of Python
	@$(PYTEST) tests/cache/lister tests/cache/store tests/blocking tests/timing

unit-clients: $(STAMP)  ## pytest without the server's suites, the programs in other languages, and what no version of Python changes
	@$(PYTEST) $(addprefix --ignore=,$(SAME_ON_EACH)) tests/apiserver/storage examples $(wildcard tests/test_*.py) \
	  $(filter-out $(SERVER_SUITES) tests/foreign tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/)))

test-disk: $(STAMP)  ## the server's suites once more, with all objects on disk
	@KUBELOOP_TEST_STORAGE=sqlite $(PYTEST) $(SERVER_SUITES) --deselect tests/apiserver/storage

test-real: $(STAMP)  ## the suites that talk to a server, against a real kube-apiserver (needs Go)
	@$(BIN)/python -m tests.realserver run

test-real-short: $(STAMP)  ## test-real without the suites of the server that passed on a real one as they are (tests/realserver/verified.json)
	@$(BIN)/python -m tests.realserver short

test-proxy: $(STAMP)  ## kubectl's transcripts and the conformance scenarios through a proxy, without rules and with idle ones, as they are without it
	@KUBELOOP_TEST_PROXY=1 $(PYTEST) tests/kubectl tests/conformance/test_scenarios.py tests/apiserver/kubelet/test_kubectl.py
	@KUBELOOP_TEST_PROXY=rules $(PYTEST) tests/kubectl tests/conformance/test_scenarios.py tests/apiserver/kubelet/test_kubectl.py

test-proxy-real: $(STAMP)  ## the same in front of a real kube-apiserver (needs Go), 3 minutes; KUBELOOP_TEST_PROXY=rules: with rules that change nothing
	@$(BIN)/python -m tests.realserver proxy

conformance: $(STAMP)  ## replay what a real server answered and print the score
	@$(BIN)/python -m tests.conformance

conformance-upstream: $(STAMP)  ## Kubernetes' own conformance suite against the embedded server (needs Go); CONFORMANCE="--focus REGEX --store"
	@$(BIN)/python -m tests.upstream $(CONFORMANCE)

conformance-gateway: $(STAMP)  ## the Gateway API's conformance suite against the ingress controller, 4 minutes (needs Go, root); GATEWAY="--no-lua --store"
	@$(BIN)/python -m tests.gateway_conformance $(GATEWAY)

bench: $(STAMP)  ## kubeloop and its peers in one run, with ratios (CPU time)
	@$(BIN)/python -m bench

million: $(STAMP)  ## an informer with a million pods: memory, time per event
	@$(BIN)/python -m bench million

soak: soak-informers soak-controllers soak-server soak-proxy soak-tests  ## all of the following, about an hour

soak-informers: $(STAMP)  ## a million events under random faults; SOAK="--events 100000 --real KUBECONFIG" changes that
	@$(BIN)/python -m tests.soak $(SOAK)

soak-controllers: $(STAMP)  ## controllers in several replicas under faults and kills; SOAK="--objects 2000 --minutes 3" changes that
	@$(BIN)/python -m tests.soak.controllers $(SOAK)

soak-server: $(STAMP)  ## the server with 1,000 watchers and 200 clients for 10 minutes, then overloaded; SOAK="--minutes 3" changes that
	@$(BIN)/python -m tests.soak.server $(SOAK)

soak-proxy: $(STAMP)  ## clients of the proxy, client-go's informers among them, under random rules and faults; SOAK="--rounds 20" changes that
	@$(BIN)/python -m tests.soak.proxy $(SOAK)

soak-tests: $(STAMP)  ## the long form of the tests that draw histories at random and kill servers; each run of the suite has a short one
	@KUBELOOP_TEST_LONG=1 $(PYTEST) tests/fuzz tests/cache/model tests/apiserver/storage/test_kill.py tests/merge/fields/test_managing.py \
	  tests/codec/test_lossless_property.py
	@KUBELOOP_TEST_LONG=1 $(PYTEST) tests/controlplane tests/conformance/test_with_controllers.py -k "survive or kill or upstreams"

fuzz: $(STAMP)  ## random requests to the embedded server; FUZZ="--requests 1000000" for longer
	@$(BIN)/python -m tests.fuzz $(FUZZ)

mutants: $(STAMP)  ## MODULE=kubeloop.workqueue: change it in small ways and count what its tests notice; SAMPLE=60 tries fewer; TESTS=PATH
	@test -n "$(MODULE)" || { echo "make mutants: name a module: make mutants MODULE=kubeloop.workqueue" >&2; exit 2; }
	@$(BIN)/python -m tools.mutants $(MODULE) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(if $(TESTS),--tests $(TESTS))

generate: $(STAMP)  ## regenerate the built-in models, from the shipped schemas or: make generate OPENAPI=DIR
	@$(BIN)/kubeloop generate models --builtins $(if $(OPENAPI),--openapi $(OPENAPI)) --out src/kubeloop/api

release: $(STAMP)  ## build and check wheel and source archive, and try the wheel on each supported Python
	@$(BIN)/python -m tools.release $(RELEASE)

lock:  ## renew requirements/*.txt (needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate pyproject.toml --all-extras --group dev -o requirements/dev.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate --group release -o requirements/release.txt

clean:  ## remove everything that was made
	rm -rf $(VENV) .venv-* .pythons .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .import_linter_cache.log .realserver
