"""Streams of the client, by way of either server, to a node whose kubelet is scripted: that of the server's own tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kubeloop.client import Client
from kubeloop.transport import Transport
from tests.apiserver.kubelet.conftest import Cluster, cluster, echo_server, kubectl_home, kubelet, node
from tests.apiserver.kubelet.scripted import ScriptedKubelet

__all__ = ["Cluster", "ScriptedKubelet", "client", "cluster", "echo_server", "kubectl_home", "kubelet", "node"]


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    """A client whose default namespace is the test's."""
    async with Client(Transport(cluster.server.config), namespace=cluster.namespace) as made:
        yield made


@pytest.fixture
async def one_node(cluster: Cluster, kubelet: ScriptedKubelet) -> str:
    """A node with the scripted kubelet, for what does not depend on the kubelet's generation."""
    return await cluster.node(kubelet)
