"""A server without controllers, and our own controllers, which run against it in a thread until the last test of the process ends.

With KUBELOOP_TEST_CONTROLLERS=upstream the real kube-controller-manager works instead, beside our own scheduler and simulated node."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from kubeloop.api.core.v1 import Namespace, Node, ServiceAccount
from kubeloop.client import Client
from kubeloop.controller import ControllerBase, Manager, Runnable
from kubeloop.controlplane import ClusterKeys, controllers
from kubeloop.controlplane.autoscaling.horizontal import HorizontalPodAutoscalerController
from kubeloop.controlplane.scheduling.scheduler import Scheduler
from kubeloop.controlplane.simulation.nodes import SimulatedNodes
from kubeloop.meta import ObjectMeta
from kubeloop.pki import CertificateAuthority, SigningKey
from kubeloop.transport import Transport
from tests.realserver.controller_manager import ControllerManager, controller_manager, upstream_is_wanted
from tests.servers import ServerUnderTest, server_under_test

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def bare_server() -> Iterator[ServerUnderTest]:
    with server_under_test(controllers=False) as found:
        yield found


@pytest.fixture(scope="session")
def upstream(bare_server: ServerUnderTest) -> Iterator[ControllerManager | None]:
    """The real kube-controller-manager, if it is to be at work."""
    if not upstream_is_wanted():
        yield None
        return
    with controller_manager(bare_server) as running:
        yield running


@pytest.fixture(scope="session")
def running_controllers(bare_server: ServerUnderTest, upstream: ControllerManager | None) -> Iterator[None]:
    """All built-in controllers, or the ones that upstream has elsewhere, and one node. All tests share them: a start takes seconds."""
    keys = ClusterKeys(CertificateAuthority.create("test-signer"), SigningKey.load((bare_server.keys / "sa.key").read_bytes()))
    chosen = controllers(authority=bare_server.authority, keys=keys) if upstream is None else [Scheduler(), SimulatedNodes()]
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        ending = asyncio.Event()
        async with Client(Transport(bare_server.config)) as own, Manager(own, [_quick(one) for one in chosen], grace=60):
            started.set_result((asyncio.get_running_loop(), ending))
            await ending.wait()

    with ThreadPoolExecutor(1, "controllers") as thread:
        running = thread.submit(asyncio.run, run())
        running.add_done_callback(lambda ended: None if started.done() else started.set_exception(ended.exception() or RuntimeError()))
        loop, ending = started.result()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(ending.set)
            running.result()


@pytest.fixture
async def client(bare_server: ServerUnderTest, running_controllers: None) -> AsyncIterator[Client]:
    """In a new namespace, which has its service account already; the controllers run."""
    name = f"controlplane-{os.getpid()}-{next(_NUMBERS)}"
    async with Client(Transport(bare_server.config), namespace=name) as found:
        await found.create(Namespace(metadata=ObjectMeta(name=name)))
        # Admission of a real server refuses pods until then.
        await found.wait_for(ServiceAccount, "default", bool, timeout=60)
        yield found
        await found.delete(Namespace, name)
        if not upstream_is_wanted():  # upstream's waits for five seconds before it begins
            await found.wait_gone(Namespace, name, timeout=60)
        for node in await found.list(Node):
            if node.metadata.labels.get("test") == name:
                await found.delete(node)


def _quick(controller: ControllerBase[Any] | Runnable) -> ControllerBase[Any] | Runnable:
    """Return a controller that works once a second instead of every 15 seconds, or ``controller`` itself if it does not poll."""
    return HorizontalPodAutoscalerController(period=1.0) if isinstance(controller, HorizontalPodAutoscalerController) else controller
