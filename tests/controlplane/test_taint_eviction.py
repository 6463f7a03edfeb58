"""Pods on nodes with NoExecute taints: which pods stay, when the others are evicted, and their events and conditions."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kubeloop.api.core.v1 import Event, Node, Pod, Taint, Toleration
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.controlplane.nodes.taint_eviction import TaintEvictionController, tolerated_seconds
from kubeloop.meta import NotFound, ObjectMeta
from tests.controlplane.kills import KillScenario, assert_survives_kills
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.workloads import pod

GPU = Taint(key="gpu", value="a", effect="NoExecute")
LOST = Taint(key="node.kubernetes.io/unreachable", effect="NoExecute")


def tolerate(key: str | None = "gpu", seconds: int | None = None, **fields: Any) -> Toleration:
    return Toleration(key=key, toleration_seconds=seconds, **({"operator": "Exists"} | fields))


@pytest.mark.parametrize(
    ("taints", "tolerations", "expected"),
    [
        pytest.param([GPU], [], 0.0, id="no toleration"),
        pytest.param([GPU], [tolerate()], math.inf, id="a toleration without a limit"),
        pytest.param([GPU], [tolerate(seconds=30)], 30.0, id="a toleration for some time"),
        pytest.param([GPU], [tolerate(seconds=-5)], 0.0, id="a negative time is none"),
        pytest.param([GPU], [tolerate(operator="Equal", value="a")], math.inf, id="the same value"),
        pytest.param([GPU], [tolerate(operator=None, value="b")], 0.0, id="another value"),
        pytest.param([GPU], [tolerate(effect="NoSchedule")], 0.0, id="another effect"),
        pytest.param([GPU], [tolerate(key=None)], math.inf, id="every key"),
        pytest.param([GPU, LOST], [tolerate()], 0.0, id="one of two taints"),
        pytest.param([GPU, LOST], [tolerate(seconds=30), tolerate(LOST.key, 10)], 10.0, id="the shortest time of two"),
        pytest.param([GPU], [tolerate(seconds=30), tolerate()], 30.0, id="the first of two tolerations"),
    ],
)
def test_tolerated_seconds(taints: list[Taint], tolerations: list[Toleration], expected: float) -> None:
    assert tolerated_seconds(taints, tolerations) == expected


async def taint(client: Client, *taints: Taint) -> None:
    node = await client.get(Node, "n")
    node.spec.taints = list(taints)
    await client.update(node)


async def add_pod(cluster: FakeTimeCluster, *tolerations: Toleration) -> None:
    await cluster.client.create(pod("p", node_name="n", tolerations=list(tolerations), termination_grace_period_seconds=30))


async def is_evicted(cluster: FakeTimeCluster) -> bool:
    try:
        stored = await cluster.client.get(Pod, "p")
    except NotFound:
        return True
    return stored.metadata.deletion_timestamp is not None


async def messages(cluster: FakeTimeCluster) -> list[str]:
    events = await cluster.client.list(Event, namespace=ALL_NAMESPACES)
    return [one.message or "" for one in events if one.reason == "TaintManagerEviction"]


async def test_a_pod_without_a_toleration_goes_at_once_and_says_why() -> None:
    async with simulation(TaintEvictionController()) as cluster:
        await cluster.add_node("n")
        await add_pod(cluster)
        await taint(cluster.client, GPU)
        await cluster.pass_time(1)
        stored = await cluster.client.get(Pod, "p")
        assert stored.metadata.deletion_grace_period_seconds == 30
        (condition,) = stored.status.conditions
        assert (condition.type, condition.status, condition.reason, condition.message) == (
            "DisruptionTarget",
            "True",
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
        )
        assert await messages(cluster) == ["Marking for deletion Pod default/p"]


async def test_a_pod_that_is_bound_to_a_tainted_node_goes() -> None:
    async with simulation(TaintEvictionController()) as cluster:
        await cluster.add_node("n", taints=[GPU])
        await add_pod(cluster)
        await cluster.pass_time(1)
        assert await is_evicted(cluster)


async def test_a_toleration_lasts_its_time_and_no_longer() -> None:
    async with simulation(TaintEvictionController()) as cluster:
        await cluster.add_node("n")
        await add_pod(cluster, tolerate(seconds=30, effect="NoExecute"))
        await taint(cluster.client, GPU)
        await cluster.pass_time(29)
        assert not await is_evicted(cluster)
        await cluster.pass_time(2)
        assert await is_evicted(cluster)


async def test_an_eviction_is_cancelled_when_the_taint_goes() -> None:
    async with simulation(TaintEvictionController()) as cluster:
        await cluster.add_node("n")
        await add_pod(cluster, tolerate(seconds=30, effect="NoExecute"))
        await taint(cluster.client, GPU)
        await cluster.pass_time(20)
        await taint(cluster.client)
        await cluster.pass_time(60)
        assert not await is_evicted(cluster)
        assert await messages(cluster) == ["Cancelling deletion of Pod default/p"]


async def test_a_second_taint_that_is_not_tolerated_evicts_at_once() -> None:
    async with simulation(TaintEvictionController()) as cluster:
        await cluster.add_node("n")
        await add_pod(cluster, tolerate(seconds=300, effect="NoExecute"))
        await taint(cluster.client, GPU)
        await cluster.pass_time(5)
        await taint(cluster.client, GPU, Taint(key="other", effect="NoExecute"))
        await cluster.pass_time(1)
        assert await is_evicted(cluster)
        assert await messages(cluster) == ["Cancelling deletion of Pod default/p", "Marking for deletion Pod default/p"]


async def test_taints_with_other_effects_evict_no_pod() -> None:
    async with simulation(TaintEvictionController()) as cluster:
        await cluster.add_node("n")
        await add_pod(cluster)
        await taint(cluster.client, Taint(key="gpu", effect="NoSchedule"), Taint(key="gpu", effect="PreferNoSchedule"))
        await cluster.pass_time(10)
        assert not await is_evicted(cluster)


async def test_a_new_pod_of_the_same_name_has_its_whole_time() -> None:
    async with simulation(TaintEvictionController()) as cluster:
        await cluster.add_node("n", taints=[GPU])
        await add_pod(cluster, tolerate(seconds=30, effect="NoExecute"))
        await cluster.pass_time(20)
        await cluster.client.delete(Pod, "p", grace_period_seconds=0)
        await add_pod(cluster, tolerate(seconds=30, effect="NoExecute"))
        await cluster.pass_time(20)
        assert not await is_evicted(cluster)


async def evict_one(cluster: FakeTimeCluster) -> None:
    await cluster.add_node("n")
    await add_pod(cluster)
    stored = await cluster.client.get(Pod, "p")
    stored.metadata.finalizers = ["example.com/seen"]
    await cluster.client.update(stored)
    await cluster.client.create(Pod(metadata=ObjectMeta(name="q"), spec=pod("q", node_name="n").spec))
    await taint(cluster.client, GPU)
    await cluster.pass_time(5)


async def test_evictions_end_in_the_same_state_wherever_the_controller_is_killed() -> None:
    writes = await assert_survives_kills(KillScenario(lambda: [TaintEvictionController()], evict_one, (Node, Pod), settle=10))
    assert len(writes) == 4


@pytest.mark.server
async def test_a_node_with_a_taint_loses_the_pods_that_do_not_tolerate_it(client: Client) -> None:
    name = f"{client.namespace}-tainted"
    await client.create(Node(metadata=ObjectMeta(name=name, labels={"test": client.namespace or ""})))
    stays = pod("stays", node_name=name, tolerations=[Toleration(operator="Exists")], termination_grace_period_seconds=0)
    goes = pod("goes", node_name=name, termination_grace_period_seconds=30)
    try:
        for made in (stays, goes):
            await client.create(made)
        await client.patch(Node, name, {"spec": {"taints": [{"key": "gpu", "value": "a", "effect": "NoExecute"}]}})
        evicted = await client.wait_for(Pod, "goes", lambda pod: pod.metadata.deletion_timestamp is not None, timeout=60)
        reasons = {one.type: one.reason for one in evicted.status.conditions}
        assert reasons["DisruptionTarget"] == "DeletionByTaintManager"
        assert (await client.get(Pod, "stays")).metadata.deletion_timestamp is None
    finally:
        for one in ("goes", "stays"):
            await client.delete(Pod, one, grace_period_seconds=0)
