"""What only upstream's kube-controller-manager does: jobs, and its election."""

from __future__ import annotations

import re

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.coordination.v1 import Lease
from kubeloop.client import Client
from tests.controlplane.workloads import deployment, is_rolled_out
from tests.realserver.controller_manager import ControllerManager

pytestmark = [pytest.mark.server, pytest.mark.upstream, pytest.mark.timeout(300)]

_LONG = 90.0
#: What it logs when a server answers as none should: lists and watches, discovery, permissions, contents.
_OF_THE_SERVER = re.compile(
    r"reflector\.go|[Ff]ailed to (list|watch)|decod|unmarshal|cannot (get|list|watch|create|update|patch|delete) resource|Unauthorized|"
    r"could not find the requested resource|[Ii]nternal (server )?error|unable to retrieve|panic|legacy_serviceaccount|unknown field"
)


async def test_it_is_elected_and_finds_nothing_to_complain_of(client: Client, upstream: ControllerManager) -> None:
    await client.create(deployment("d", 2))
    await client.wait_for(Deployment, "d", is_rolled_out, timeout=_LONG)
    lease = await client.get(Lease, f"test-{upstream.port}", namespace="kube-system")
    assert lease.spec.holder_identity
    # Of two that write at once, of namespaces that end and of kinds whose definition is gone it complains on any server.
    assert [line for line in upstream.complaints if _OF_THE_SERVER.search(line) and "PartialObjectMetadata" not in line] == []
