"""pytest fixtures for projects that use kubeloop: ``pytest_plugins = ["kubeloop.testing.plugin"]`` in the topmost conftest.py.

Most are async fixtures: they need pytest-asyncio (any mode) or anyio's plugin.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from kubeloop.meta import ConfigError, KubeloopError
from kubeloop.meta.failure_log import shortened, user_frame
from kubeloop.testing import LocalCluster
from kubeloop.testing.format import RUN
from kubeloop.testing.kube_cluster import Isolation, KubeCluster, choose, own_server, shared_server
from kubeloop.timing import FakeClock, SystemClock


def _refused_fixture(function: Callable[..., Any]) -> Any:
    """Return a fixture that replaces an async one if no plugin can run it: it says which plugin to install."""

    def refused() -> None:
        pytest.fail(f"the fixture {function.__name__} needs pytest-asyncio: pip install pytest-asyncio", pytrace=False)

    return pytest.fixture(refused, name=function.__name__)


if TYPE_CHECKING:
    from kubeloop.client import Client
    from kubeloop.controller import ControllerBase, Manager, Runnable
    from kubeloop.testing import Actions, Faults, HandlerServer

    async_fixture = pytest.fixture
else:
    try:
        from pytest_asyncio import fixture as async_fixture  # works in its strict mode, too
    except ImportError:
        async_fixture = pytest.fixture if find_spec("anyio") else _refused_fixture

_NUMBERS = itertools.count(1)
#: Fixtures that need a separate server.
_NEED_OWN = ("kube_clock", "kube_faults", "kube_actions")


class StartsManager(Protocol):
    """The type of the fixture ``kube_manager``: ``manager = await kube_manager(FooController())``.

    The manager is synced when the call returns, and it is stopped after the test. ``options`` are for ``Manager``.
    """

    async def __call__(self, *controllers: ControllerBase[Any] | Runnable, **options: Any) -> Manager: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kubeloop")
    group.addoption("--update-golden", action="store_true", help="assert_golden writes its files instead of comparing with them.")
    group.addoption(
        "--kube-isolation", choices=("namespace", "server"), help="How kube_cluster keeps tests apart that do not say it themselves."
    )
    # With "=": pytest looks for conftest.py files before it knows this option, and takes a separate FILE for one of tests.
    group.addoption("--kube-config", metavar="FILE", help="--kube-config=FILE: run tests that share a server against this cluster.")
    parser.addini("kube_isolation", "How kube_cluster keeps tests apart: namespace (on a shared server) or server.", default="namespace")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", 'kube(isolation): "namespace" on a shared server, or a "server" of the test\'s own (kubeloop).')
    RUN.update = bool(config.getoption("--update-golden"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    RUN.folder = item.path.parent


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """Remove kubeloop's frames from the report of an error in a test: its text and the test's line are enough."""
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, KubeloopError) and user_frame(error) is not None and not item.config.getoption("fulltrace"):
        call.excinfo = pytest.ExceptionInfo.from_exception(shortened(error))


@pytest.fixture(scope="session")
def kubeloop_cluster() -> Iterator[LocalCluster]:
    """One embedded server with its controllers for the whole run, in a separate process."""
    with LocalCluster() as cluster:
        yield cluster


@async_fixture
async def kube_cluster(request: pytest.FixtureRequest) -> AsyncIterator[KubeCluster]:
    """The test's cluster: a namespace on a server that the whole run shares, or a separate server.

    ``@pytest.mark.kube(isolation="server")`` decides, else the test's fixtures (``kube_clock``, ``kube_faults`` and
    ``kube_actions`` need a separate server), else ``--kube-isolation``, else ``kube_isolation`` in pytest's configuration.

    Not guaranteed
        On a shared server, cluster-scoped objects (CustomResourceDefinitions, Nodes) are shared with other tests.
    """
    if _isolation(request) == "server":
        clock = request.getfixturevalue("kube_clock") if "kube_clock" in request.fixturenames else SystemClock()
        async with own_server(clock) as own:
            yield own
        return
    given = request.config.getoption("--kube-config")
    kubeconfig = Path(given) if given else request.getfixturevalue("kubeloop_cluster").kubeconfig
    async with shared_server(kubeconfig, f"test-{os.getpid()}-{next(_NUMBERS)}") as shared:
        yield shared


@pytest.fixture
def kube_client(kube_cluster: KubeCluster) -> Client:
    """An administrator's client whose default namespace, ``kube_client.namespace``, is the test's own."""
    return kube_cluster.client()


@pytest.fixture
def kube_manager(kube_cluster: KubeCluster) -> StartsManager:
    """Starts managers that are stopped after the test: ``manager = await kube_manager(FooController())``.

    Each manager has a separate client. On a shared server, a manager watches only the test's namespace by default.
    """
    return kube_cluster.start_manager


@pytest.fixture
def kube_clock() -> FakeClock:
    """The clock of the test's server, clients and managers. Its time passes only when the test moves it, or waits with ``eventually``."""
    return FakeClock()


@pytest.fixture
def kube_faults(kube_cluster: KubeCluster) -> Faults:
    """Injects faults into the test's server, one line each."""
    return kube_cluster.faults


@pytest.fixture
def kube_actions(kube_cluster: KubeCluster) -> Actions:
    """The writes of the test's managers: ``kube_actions.expect(...)`` compares them with a table."""
    return kube_cluster.actions


@async_fixture
async def in_process_server() -> AsyncIterator[HandlerServer]:
    """A separate server in the test's event loop and without a socket: ``in_process_server.client()``, ``in_process_server.faults``."""
    from kubeloop.testing import HandlerServer

    async with HandlerServer() as found:
        yield found


def _isolation(request: pytest.FixtureRequest) -> Isolation:
    config = request.config
    asked = [marker.kwargs.get("isolation") for marker in request.node.iter_markers("kube")]
    needs = next((name for name in _NEED_OWN if name in request.fixturenames), "")
    default = config.getoption("--kube-isolation") or config.getini("kube_isolation")
    try:
        return choose(asked, default, needs)
    except ConfigError as error:
        pytest.fail(f"{request.node.name}: {error}", pytrace=False)
