"""A program of controllers works while it holds its Lease: kubeloop's, or kube-controller-manager."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.coordination.v1 import Lease
from kubeloop.client import Client
from kubeloop.meta import ObjectKey
from tests.controlplane.workloads import deployment, is_rolled_out
from tests.realserver.controller_manager import ControllerManager, own_controllers
from tests.servers import ServerUnderTest

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

_LONG = 90.0


@pytest.fixture
def lease(bare_server: ServerUnderTest, upstream: ControllerManager | None) -> Iterator[ObjectKey]:
    """The Lease of a program that runs."""
    if upstream is not None:
        yield ObjectKey("", "kube-system", upstream.lease)
        return
    with own_controllers(bare_server, lease="test-own-controllers"):
        yield ObjectKey("", "kube-system", "test-own-controllers")


async def test_it_is_elected_and_works(lease: ObjectKey, client: Client) -> None:
    def is_held(lease: Lease) -> bool:
        return bool(lease.spec.holder_identity and lease.spec.lease_duration_seconds and lease.spec.acquire_time)

    held = await client.wait_for(Lease, lease.name, is_held, namespace=lease.namespace, timeout=_LONG)
    await client.create(deployment("d", 2))
    await client.wait_for(Deployment, "d", is_rolled_out, timeout=_LONG)

    def is_renewed(lease: Lease) -> bool:
        return lease.spec.renew_time is not None and held.spec.renew_time is not None and lease.spec.renew_time > held.spec.renew_time

    renewed = await client.wait_for(Lease, lease.name, is_renewed, namespace=lease.namespace, timeout=_LONG)
    assert (renewed.spec.holder_identity, renewed.spec.lease_transitions) == (held.spec.holder_identity, held.spec.lease_transitions)
