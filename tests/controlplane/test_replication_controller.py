"""ReplicationControllers: the logic of ReplicaSets with a plain selector."""

from __future__ import annotations

import pytest

from kubeloop.api.core.v1 import Pod, ReplicationController, ReplicationControllerSpec
from kubeloop.client import Client
from kubeloop.controlplane.workloads.replicaset import ReplicationManager
from kubeloop.meta import Forbidden, ObjectMeta, Status
from tests.controlplane.played_pods import start_pods
from tests.controlplane.simulated import simulation
from tests.controlplane.workloads import is_ready, pod, template

_LONG = 90.0


def replication_controller(name: str, replicas: int) -> ReplicationController:
    spec = ReplicationControllerSpec(replicas=replicas, selector={"app": name}, template=template(name))
    return ReplicationController(metadata=ObjectMeta(name=name), spec=spec)


async def ready(client: Client, replicas: int) -> ReplicationController:
    def matches(controller: ReplicationController) -> bool:
        return (controller.status.replicas, controller.status.ready_replicas or 0) == (replicas, replicas)

    return await client.wait_for(ReplicationController, "r", matches, timeout=_LONG)


@pytest.mark.server
@pytest.mark.timeout(180)
async def test_it_creates_pods_and_counts_them_and_deletes_surplus_ones(client: Client) -> None:
    made = await client.create(replication_controller("r", 3))
    done = await ready(client, 3)
    status = done.status
    assert (status.available_replicas, status.fully_labeled_replicas, status.observed_generation) == (3, 3, done.metadata.generation)
    pods = await client.list(Pod, namespace=client.namespace)
    assert {one.metadata.generate_name for one in pods} == {"r-"}
    assert {(one.kind, one.uid) for each in pods for one in each.metadata.owner_references} == {
        ("ReplicationController", made.metadata.uid)
    }
    await client.set_scale(ReplicationController, "r", 1)
    await ready(client, 1)


async def test_an_orphan_that_comes_later_is_adopted_and_a_surplus_pod_goes() -> None:
    async with simulation(ReplicationManager()) as cluster:
        await cluster.client.create(replication_controller("r", 1))
        await start_pods(cluster)
        await cluster.client.create(pod("late", {"app": "r"}))
        await cluster.pass_time(2)
        (left,) = await cluster.client.list(Pod)
        assert is_ready(left), "the pod that is not ready goes"


async def test_pods_that_lose_their_owner_are_adopted_by_the_next_one() -> None:
    async with simulation(ReplicationManager()) as cluster:
        await cluster.client.create(replication_controller("r", 1))
        await start_pods(cluster)
        (mine,) = await cluster.client.list(Pod)
        await cluster.client.delete(ReplicationController, "r", propagation_policy="Orphan")
        await cluster.client.patch(ReplicationController, "r", {"metadata": {"finalizers": None}})
        await cluster.client.patch(Pod, mine.metadata.name, {"metadata": {"ownerReferences": None}})
        await cluster.pass_time(1)
        heir = await cluster.client.create(replication_controller("r", 1))
        await cluster.pass_time(1)
        (left,) = await cluster.client.list(Pod)
        assert (left.metadata.uid, left.metadata.owner_references[0].uid) == (mine.metadata.uid, heir.metadata.uid)


async def test_a_refused_pod_sets_a_condition_that_keeps_its_first_message_until_pods_are_created() -> None:
    async with simulation() as cluster:
        refused = [Forbidden(Status(reason="Forbidden", code=403, message=text)) for text in ("exceeded quota: pods", "another reason")]
        for error in refused:
            cluster.faults.refuse(error, times=4, matching=lambda request: request.method == "POST" and request.path.endswith("/pods"))
        await cluster.start(ReplicationManager())
        await cluster.client.create(replication_controller("r", 1))
        await cluster.pass_time(0.3)
        (condition,) = (await cluster.client.get(ReplicationController, "r")).status.conditions
        assert (condition.type, condition.status, condition.reason, condition.message) == (
            "ReplicaFailure",
            "True",
            "FailedCreate",
            "exceeded quota: pods",
        )
        await start_pods(cluster)
        status = (await cluster.client.get(ReplicationController, "r")).status
        assert (status.conditions, status.available_replicas) == ([], 1)
