"""ReplicaSets over an API server: creating, deleting, adopting, releasing, status."""

import asyncio

import pytest

from kubeloop.api.apps.v1 import ReplicaSet
from kubeloop.api.core.v1 import Event, Pod
from kubeloop.client import Client
from kubeloop.controller import Manager, controller_of
from kubeloop.controlplane.workloads.replicaset import ReplicaSetController
from kubeloop.meta import Forbidden, Status
from kubeloop.testing import TlsTestServer
from kubeloop.transport import Transport
from tests.controlplane.workloads import pod, replica_set

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]


async def ready(client: Client, replicas: int, name: str = "r") -> ReplicaSet:
    return await client.wait_for(
        ReplicaSet,
        name,
        lambda replica_set: (replica_set.status.replicas, replica_set.status.ready_replicas or 0) == (replicas, replicas),
        timeout=60,
    )


async def test_it_creates_as_many_pods_as_asked_for_and_counts_them(client: Client) -> None:
    await client.create(replica_set("r", 3))
    status = (await ready(client, 3)).status
    assert (status.available_replicas, status.fully_labeled_replicas, status.terminating_replicas) == (3, 3, 0)
    pods = await client.list(Pod, namespace=client.namespace)
    assert len(pods) == 3


async def test_it_replaces_a_pod_that_was_deleted(client: Client) -> None:
    await client.create(replica_set("r", 2))
    await ready(client, 2)
    gone = (await client.list(Pod, namespace=client.namespace))[0]
    await client.delete(gone)
    await client.wait_gone(Pod, gone.metadata.name, timeout=60)
    await ready(client, 2)
    names = {one.metadata.name for one in await client.list(Pod, namespace=client.namespace)}
    assert len(names) == 2
    assert gone.metadata.name not in names


async def test_it_deletes_pods_that_are_too_many(client: Client) -> None:
    await client.create(replica_set("r", 4))
    await ready(client, 4)
    await client.set_scale(ReplicaSet, "r", 1)
    await ready(client, 1)


async def test_it_never_creates_more_pods_than_requested_however_often_it_reconciles(client: Client) -> None:
    await client.create(replica_set("r", 5))
    for number in range(20):
        await client.patch(ReplicaSet, "r", {"metadata": {"annotations": {"n": str(number)}}})
    await ready(client, 5)
    events = [one for one in await client.list(Event, namespace=client.namespace) if one.reason == "SuccessfulCreate"]
    assert len(await client.list(Pod, namespace=client.namespace)) == 5
    assert sum(one.count or 0 for one in events) <= 5


async def test_it_adopts_a_pod_without_a_controller_that_matches(client: Client) -> None:
    await client.create(pod("lonely", {"app": "r"}))
    owner = await client.create(replica_set("r", 1))
    adopted = await client.wait_for(Pod, "lonely", controller_of, timeout=60)
    (reference,) = adopted.metadata.owner_references
    assert (reference.uid, reference.controller, reference.block_owner_deletion) == (owner.metadata.uid, True, True)
    # A controller that had not seen it yet made one more, and deletes one of the two.
    async with asyncio.timeout(60):
        while len(await client.list(Pod, namespace=client.namespace)) != 1:
            await asyncio.sleep(0.05)


async def test_it_releases_a_pod_that_no_longer_matches_and_makes_another(client: Client) -> None:
    await client.create(replica_set("r", 1))
    await ready(client, 1)
    (mine,) = await client.list(Pod, namespace=client.namespace)
    await client.patch(Pod, mine.metadata.name, {"metadata": {"labels": {"app": "other"}}})
    await client.wait_for(Pod, mine.metadata.name, lambda pod: not pod.metadata.owner_references, timeout=60)
    await ready(client, 1)
    pods = await client.list(Pod, namespace=client.namespace, label_selector="app=r")
    assert [one.metadata.name != mine.metadata.name for one in pods] == [True]


async def test_a_ready_pod_is_available_only_after_min_ready_seconds(client: Client) -> None:
    await client.create(replica_set("r", 1, min_ready_seconds=3600))
    assert (await ready(client, 1)).status.available_replicas is None
    await client.patch(ReplicaSet, "r", {"spec": {"minReadySeconds": 0}})
    await client.wait_for(ReplicaSet, "r", lambda replica_set: replica_set.status.available_replicas == 1, timeout=60)


@pytest.mark.embedded
async def test_it_says_so_while_pods_are_refused_and_goes_on_trying(in_loop_server: TlsTestServer) -> None:
    quota = Forbidden(Status(reason="Forbidden", code=403, message="exceeded quota: pods"))
    in_loop_server.faults.refuse(quota, times=2, matching=lambda request: request.method == "POST" and request.path.endswith("/pods"))
    async with Client(Transport(in_loop_server.config)) as client, Manager(client, [ReplicaSetController()]):
        await client.create(replica_set("r", 1))
        failed = await client.wait_for(ReplicaSet, "r", lambda replica_set: replica_set.status.conditions, timeout=60)
        (condition,) = failed.status.conditions
        assert (condition.type, condition.status, condition.reason) == ("ReplicaFailure", "True", "FailedCreate")
        assert condition.message == "exceeded quota: pods"
        await client.wait_for(
            ReplicaSet, "r", lambda replica_set: replica_set.status.replicas == 1 and not replica_set.status.conditions, timeout=60
        )
