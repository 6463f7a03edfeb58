"""A server without controllers, and our own controllers running against it in the test's event loop.

With KUBELOOP_TEST_CONTROLLERS=upstream the real kube-controller-manager works instead, beside our own scheduler and simulated node."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from kubeloop.api.core.v1 import Namespace, Node, ServiceAccount
from kubeloop.client import Client
from kubeloop.controller import Manager
from kubeloop.controlplane import ClusterKeys, controllers
from kubeloop.controlplane.node import SimulatedNodes
from kubeloop.controlplane.scheduler import Scheduler
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


@pytest.fixture
async def manager(bare_server: ServerUnderTest, upstream: ControllerManager | None) -> AsyncIterator[Manager]:
    """All built-in controllers, or those that upstream keeps elsewhere, started; one node."""
    keys = ClusterKeys(CertificateAuthority.create("test-signer"), SigningKey.create())
    chosen = controllers(authority=bare_server.authority, keys=keys) if upstream is None else [Scheduler(), SimulatedNodes()]
    async with Client(Transport(bare_server.config)) as own, Manager(own, chosen, grace=60) as running:
        yield running


@pytest.fixture
async def client(bare_server: ServerUnderTest, manager: Manager) -> AsyncIterator[Client]:
    """In a namespace of its own, which has its service account already; the controllers run."""
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
