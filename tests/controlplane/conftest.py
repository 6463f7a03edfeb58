"""A server without controllers, and our own controllers running against it in the test's event loop."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from kubeloop.api.core.v1 import Namespace, Node, ServiceAccount
from kubeloop.client import Client
from kubeloop.controller import Manager
from kubeloop.controlplane import controllers
from kubeloop.meta import ObjectMeta
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest, server_under_test

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def bare_server() -> Iterator[ServerUnderTest]:
    with server_under_test(controllers=False) as found:
        yield found


@pytest.fixture
async def manager(bare_server: ServerUnderTest) -> AsyncIterator[Manager]:
    """All built-in controllers, started; one node."""
    async with Client(Transport(bare_server.config)) as own, Manager(own, controllers(authority="PEM"), grace=60) as running:
        yield running


@pytest.fixture
async def client(bare_server: ServerUnderTest, manager: Manager) -> AsyncIterator[Client]:
    """In a namespace of its own, which has its service account already; the controllers run."""
    name = f"controlplane-{os.getpid()}-{next(_NUMBERS)}"
    async with Client(Transport(bare_server.config), namespace=name) as found:
        await found.create(Namespace(metadata=ObjectMeta(name=name)))
        # Admission of a real server refuses pods until then.
        await found.wait_for(ServiceAccount, "default", bool, timeout=10)
        yield found
        await found.delete(Namespace, name)
        await found.wait_gone(Namespace, name, timeout=20)
        for node in await found.list(Node):
            if node.metadata.labels.get("test") == name:
                await found.delete(node)
