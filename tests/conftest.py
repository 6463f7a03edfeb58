"""Shared fixtures: one server for a run, a namespace and a client for each test."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from kubeloop.api.core.v1 import Namespace, ServiceAccount
from kubeloop.client import Client
from kubeloop.meta import AlreadyExists, ObjectMeta
from kubeloop.testing import LocalCluster, TlsTestServer
from tests.foreign.building import left_out_programs
from tests.realserver.controller_manager import upstream_is_wanted
from tests.servers import ServerUnderTest, real_is_wanted, server_under_test
from tests.storages import choose_storage
from tests.transport.severed import reason_without_namespaces

_NUMBERS = itertools.count(1)

#: Files of a minute or more, the longest first: workers take whole files, and a worker that begins such a file last delays the end.
_LONG_FILES = (
    "tests/foreign/test_rust.py",
    "tests/cli/new/test_edits.py",
    "tests/kubectl/test_transcripts.py",
    "tests/foreign/test_operators.py",
    "examples/bitcoin_operator/tests/test_real_daemons.py",
    "examples/bitcoin_tutorial/tests/test_process_pods.py",
    "tests/docs/test_pages.py",
    "tests/apiserver/builtin/test_validation_errors.py",
    "tests/cli/test_commands.py",
    "tests/cli/test_server.py",
    "examples/sample_controller/tests/test_on_servers.py",
    "tests/cli/new/test_add.py",
    "tests/cli/new/test_make.py",
    "tests/cli/new/test_operator.py",
    "tests/cli/run/test_run.py",
    "tests/controlplane/test_garbage_collector.py",
    "tests/conformance/test_scenarios.py",
    "tests/fuzz/test_fuzz.py",
    "tests/controller/helpers/test_by_kind.py",
    "tests/testing/test_plugin.py",
    "tests/conformance/sweep/test_other_kinds.py",
    "tests/cache/model/test_model.py",
)

# The same examples on every run, so that a change is judged by what it changed. To look for new ones: HYPOTHESIS_PROFILE=explore make unit
# How long the drawing of values takes depends on the load of the machine.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", settings.get_profile("steady"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


def pytest_configure(config: pytest.Config) -> None:
    choose_storage(config)
    # Collected items stay: searching them for cycles again and again takes a tenth of the collection.
    gc.set_threshold(100_000, 20, 20)


def pytest_sessionstart() -> None:
    """Let SIGINT end the programs that tests start, also where a shell has started pytest in the background."""
    # A shell without job control starts its background jobs with SIGINT ignored (POSIX, "Asynchronous Lists"), and children inherit that
    # through exec: programs that tests end by Ctrl-C would never end. A signal that has a handler is at its default again after exec.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files come first. Left out: tests for upstream's programs where ours run, tests that break a wire where none is."""
    order = {name: number for number, name in enumerate(_LONG_FILES)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(order)))
    left_out = [item for item in items if item.get_closest_marker("upstream")] if not upstream_is_wanted() else []
    if not real_is_wanted():
        left_out += [item for item in items if item.get_closest_marker("kube_apiserver")]
    if reason_without_lua():
        left_out += [item for item in items if item.get_closest_marker("nginx_lua")]
    wired = [item for item in items if item.get_closest_marker("network_namespace")]
    if wired and reason_without_namespaces():
        left_out += wired
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def reason_without_lua() -> str:
    """Return why tests cannot have an NGINX with Lua; empty: they can."""
    modules = Path("/usr/lib/nginx/modules/ngx_http_lua_module.so")
    return "" if shutil.which("nginx") and modules.exists() else "apt-get install nginx libnginx-mod-http-lua lua-resty-core lua-cjson"


def pytest_collection_finish() -> None:
    """Modules and twelve thousand collected tests stay until the end: looking through them for cycles took a tenth of the run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Which foreign programs were left out and why, where their tests were to run: also with --quiet, and with workers."""
    tests = Path(__file__).parent

    def was_to_run(folder: str) -> bool:
        return any((tests / folder).is_relative_to((config.invocation_params.dir / text.split("::")[0]).absolute()) for text in config.args)

    lines = left_out_programs() if was_to_run("foreign") else []
    if was_to_run("proxy") and not real_is_wanted():
        lines = [*lines, "a front proxy before a kube-apiserver: make test-real does that"]
    if was_to_run("../examples/ingress_nginx") and (reason := reason_without_lua()):
        lines = [*lines, f"the ingress controller on an NGINX with Lua: {reason}"]
    if was_to_run("transport") and (reason := reason_without_namespaces()):
        lines = [*lines, f"a wire that breaks silently (K154): {reason}"]
    for line in lines:
        terminalreporter.write_line(f"not tested: {line}")


@pytest.fixture(scope="module", autouse=True)
def _leftovers_of_a_file() -> Iterator[None]:
    """Connections and tasks that a file leaves open fail its own last test, not the test that runs when the collector happens to find them.

    What a file leaves in memory, such as modules and caches, stays; the collections of later files need not look at it again.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def server() -> Iterator[ServerUnderTest]:
    """The server under test, without controllers. Suites that use it are marked ``server`` and run against a real one too, which has none.

    A module whose tests need controllers defines ``server`` as ``server_with_controllers``.
    """
    with server_under_test(controllers=False) as found:
        yield found


@pytest.fixture(scope="session")
def server_with_controllers() -> Iterator[ServerUnderTest]:
    """The server under test, with the built-in controllers if it is the embedded one."""
    with server_under_test(controllers=True) as found:
        yield found


@pytest.fixture(scope="session")
def local_cluster() -> Iterator[LocalCluster]:
    """The embedded server in a separate process, without controllers; shared, so use your own namespace."""
    with LocalCluster(controllers=False) as cluster:
        yield cluster


@pytest.fixture
def namespace(server: ServerUnderTest) -> Iterator[str]:
    """A fresh namespace on the server under test."""
    name = f"test-{os.getpid()}-{next(_NUMBERS)}"
    server.administrator.create(Namespace(metadata=ObjectMeta(name=name)))
    # Pods need it. Where controllers run, one of them may have created it.
    with contextlib.suppress(AlreadyExists):
        server.administrator.create(ServiceAccount(metadata=ObjectMeta(name="default", namespace=name)))
    yield name
    server.administrator.delete(Namespace, name)


@pytest.fixture
async def client(server: ServerUnderTest, namespace: str) -> AsyncIterator[Client]:
    """A client of the server under test whose default namespace is the test's own."""
    from kubeloop.transport import Transport

    async with Client(Transport(server.config), namespace=namespace) as found:
        yield found


@pytest.fixture
async def in_loop_server() -> AsyncIterator[TlsTestServer]:
    """A server in the test's own event loop whose faults the test commands. Do not block in such a test."""
    async with TlsTestServer() as found:
        yield found
