"""kube-controller-manager works on the server for which it was not written, and logs no answer that no server should give."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap, Namespace, ServiceAccount
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from kubeloop.transport import Transport
from tests.controlplane.workloads import deployment
from tests.realserver.controller_manager import ControllerManager, controller_manager
from tests.servers import ServerUnderTest

# The fixture builds the program.
pytestmark = [pytest.mark.server, pytest.mark.upstream, pytest.mark.timeout(1800)]

_NAMESPACE = "of-controller-manager"
_PATIENCE = 90.0
#: What it logs when a server answers as none should: lists and watches, discovery, permissions, contents.
_OF_THE_SERVER = re.compile(
    r"reflector\.go|[Ff]ailed to (list|watch)|decod|unmarshal|cannot (get|list|watch|create|update|patch|delete) resource|Unauthorized|"
    r"could not find the requested resource|[Ii]nternal (server )?error|unable to retrieve|panic|legacy_serviceaccount|unknown field"
)


@pytest.fixture
def manager(server: ServerUnderTest) -> Iterator[ControllerManager]:
    with controller_manager(server) as running:
        yield running


async def test_its_log_has_no_error_of_the_server(server: ServerUnderTest, manager: ControllerManager) -> None:
    async with Client(Transport(server.config), namespace=_NAMESPACE) as client:
        await client.create(Namespace(metadata=ObjectMeta(name=_NAMESPACE)))
        await client.wait_for(ServiceAccount, "default", bool, timeout=_PATIENCE)
        await client.wait_for(ConfigMap, "kube-root-ca.crt", bool, timeout=_PATIENCE)
        await client.create(deployment("d", 2))
        await client.wait_for(Deployment, "d", lambda deployment: deployment.status.unavailable_replicas == 2, timeout=_PATIENCE)
        await client.delete(Namespace, _NAMESPACE)
        await client.wait_gone(Namespace, _NAMESPACE, timeout=_PATIENCE)
    # It complains on any server of two programs that write at once, of namespaces that end, and of kinds whose definition is gone.
    assert [line for line in manager.complaints if _OF_THE_SERVER.search(line) and "PartialObjectMetadata" not in line] == []
