"""pytest fixtures for projects that use kubeloop: ``pytest_plugins = ["kubeloop.testing.plugin"]`` in the topmost conftest.py.

``kube_client`` and ``in_process_server`` are async fixtures: they need pytest-asyncio (any mode) or anyio's plugin.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

from kubeloop.testing import LocalCluster

if TYPE_CHECKING:
    from kubeloop.client import Client
    from kubeloop.testing import InProcessServer

    async_fixture = pytest.fixture
else:
    try:
        from pytest_asyncio import fixture as async_fixture  # works in its strict mode, too
    except ImportError:
        async_fixture = pytest.fixture

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def kubeloop_cluster() -> Iterator[LocalCluster]:
    """One embedded server with its controllers for the whole run, in a process of its own."""
    with LocalCluster() as cluster:
        yield cluster


@async_fixture
async def kube_client(kubeloop_cluster: LocalCluster) -> AsyncIterator[Client]:
    """An administrator's client whose default namespace, ``kube_client.namespace``, is new and the test's own.

    Not guaranteed
        That objects without a namespace (CustomResourceDefinitions, Nodes) are the test's own: the cluster is shared.
    """
    from kubeloop.api.core.v1 import Namespace
    from kubeloop.client import Client
    from kubeloop.meta import ObjectMeta
    from kubeloop.transport import Transport

    name = f"test-{os.getpid()}-{next(_NUMBERS)}"
    async with Client(Transport(kubeloop_cluster.config), namespace=name) as client:
        await client.create(Namespace(metadata=ObjectMeta(name=name)))
        try:
            yield client
        finally:
            await client.delete(Namespace, name)


@async_fixture
async def in_process_server() -> AsyncIterator[InProcessServer]:
    """A server of the test's own, in its event loop and without a socket: ``in_process_server.client()``, ``in_process_server.faults``."""
    from kubeloop.testing import InProcessServer

    async with InProcessServer() as found:
        yield found
