"""Simulated nodes beside the node controllers, by fake time: Leases, failures, lost nodes and their pods, metrics."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import Node, Pod
from kubeloop.codec import to_dict
from kubeloop.controlplane.nodes.node_lifecycle import NodeLifecycleController
from kubeloop.controlplane.nodes.taint_eviction import TaintEvictionController
from kubeloop.controlplane.simulation.annotations import PREFIX, Simulation
from kubeloop.controlplane.simulation.metrics import node_metrics, pod_metrics
from kubeloop.controlplane.simulation.node_templates import KUBELET, LEASES, NodeFailure, NodeTemplate
from kubeloop.controlplane.simulation.nodes import SimulatedNodes
from kubeloop.controlplane.simulation.rules import SimulationRules
from kubeloop.controlplane.simulation.usage import UsageFunction
from kubeloop.meta import NotFound
from kubeloop.types import JSONObject
from tests.controlplane.kills import KillScenario, assert_survives_kills
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.workloads import read

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(name: str, node: str, **spec: Any) -> Pod:
    containers = [{"name": "c", "image": "x:1"}]
    return read(Pod, {"metadata": {"name": name}, "spec": {"containers": containers, "nodeName": node} | spec})


async def ready(cluster: FakeTimeCluster, kind: type[Node | Pod], name: str) -> str:
    stored = to_dict(await cluster.client.get(kind, name))
    return next((one["status"] for one in stored["status"].get("conditions") or () if one["type"] == "Ready"), "")


async def renewed(cluster: FakeTimeCluster, name: str) -> float:
    """Return the seconds since the Lease of a node was renewed."""
    stored = await cluster.client.get(Lease, name, namespace=LEASES)
    assert stored.spec.renew_time is not None
    return (cluster.clock.wall() - stored.spec.renew_time).total_seconds()


async def test_leases_are_renewed_and_nodes_stay_ready() -> None:
    async with simulation(NodeLifecycleController(), SimulatedNodes(("a", "b"))) as cluster:
        await cluster.pass_time(200)
        for name in ("a", "b"):
            assert await renewed(cluster, name) <= 10
            stored = await cluster.client.get(Node, name)
            assert (await ready(cluster, Node, name), stored.spec.taints) == ("True", [])


async def test_hundreds_of_nodes_renew_their_leases_in_small_batches() -> None:
    async with simulation(SimulatedNodes([f"n{number}" for number in range(120)])) as cluster:
        await cluster.pass_time(30)
        ages = [await renewed(cluster, f"n{number}") for number in range(120)]
        assert max(ages) <= 25
        assert len({round(age) for age in ages}) > 10


async def test_a_node_that_fails_is_lost_with_its_pods_and_comes_back() -> None:
    nodes = SimulatedNodes([NodeTemplate("good"), NodeTemplate("bad", failures=[NodeFailure(30, 150)])])
    async with simulation(NodeLifecycleController(), nodes) as cluster:
        await cluster.client.create(pod("p", "bad"))
        await cluster.pass_time(20)
        assert await ready(cluster, Pod, "p") == "True"
        await cluster.pass_time(100)
        assert (await ready(cluster, Node, "bad"), await ready(cluster, Pod, "p")) == ("Unknown", "False")
        await cluster.pass_time(100)
        assert (await ready(cluster, Node, "bad"), await ready(cluster, Pod, "p")) == ("True", "True")
        assert (await cluster.client.get(Node, "bad")).spec.taints == []


async def test_an_annotation_stops_a_kubelet_and_its_pods_are_evicted_but_not_ended() -> None:
    async with simulation(NodeLifecycleController(), TaintEvictionController(), SimulatedNodes(("a", "b"))) as cluster:
        await cluster.client.create(pod("p", "b", terminationGracePeriodSeconds=1))
        await cluster.client.patch(Node, "b", {"metadata": {"annotations": {KUBELET: "stopped"}}})
        await cluster.pass_time(400)
        stored = await cluster.client.get(Pod, "p")
        assert stored.metadata.deletion_timestamp is not None
        assert [one.reason for one in stored.status.conditions if one.type == "DisruptionTarget"] == ["DeletionByTaintManager"]
        await cluster.client.patch(Node, "b", {"metadata": {"annotations": {KUBELET: None}}})
        await cluster.pass_time(15)
        assert await ready(cluster, Node, "b") == "True"
        with pytest.raises(NotFound):
            await cluster.client.get(Pod, "p")


async def test_rules_apply_to_pods_without_annotations() -> None:
    rules = SimulationRules.from_tree({"pods": [{"simulate": {"start-seconds": 20, "run-seconds": 5, "exit-code": 4}}]})
    async with simulation(SimulatedNodes(rules=rules)) as cluster:
        await cluster.client.create(pod("p", "kubeloop-node", restartPolicy="Never"))
        await cluster.pass_time(18)
        assert (await cluster.client.get(Pod, "p")).status.phase == "Pending"
        await cluster.pass_time(10)
        stored = await cluster.client.get(Pod, "p")
        codes = [one.state.terminated.exit_code for one in stored.status.container_statuses if one.state.terminated]
        assert (stored.status.phase, codes) == ("Failed", [4])


async def test_a_node_without_the_lifecycle_controller_loses_the_taint_of_admission() -> None:
    async with simulation(SimulatedNodes()) as cluster:
        await cluster.pass_time(5)
        assert (await cluster.client.get(Node, "kubeloop-node")).spec.taints == []


async def test_a_restarted_program_takes_over_nodes_and_pods() -> None:
    async with simulation(SimulatedNodes()) as cluster:
        await cluster.client.create(pod("p", "kubeloop-node"))
        await cluster.pass_time(5)
        before = await cluster.client.get(Pod, "p")
        await cluster.stop()
        await cluster.start(SimulatedNodes())
        await cluster.client.create(pod("q", "kubeloop-node"))
        await cluster.pass_time(15)
        after = await cluster.client.get(Pod, "p")
        assert (after.status.container_statuses, after.status.pod_ip) == (before.status.container_statuses, before.status.pod_ip)
        assert (await cluster.client.get(Pod, "q")).status.pod_ip != after.status.pod_ip
        assert await renewed(cluster, "kubeloop-node") <= 10


async def run_and_delete(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(pod("p", "kubeloop-node", initContainers=[{"name": "setup", "image": "x:1"}]))
    await cluster.client.create(pod("job", "kubeloop-node", restartPolicy="Never"))
    await cluster.client.create(pod("gone", "kubeloop-node", terminationGracePeriodSeconds=5))
    await cluster.pass_time(5)
    await cluster.client.delete(Pod, "gone")
    await cluster.pass_time(10)


async def test_nodes_and_pods_end_in_the_same_state_wherever_the_program_is_killed() -> None:
    writes = await assert_survives_kills(KillScenario(lambda: [SimulatedNodes()], run_and_delete, (Node, Pod), settle=20))
    assert len(writes) >= 7


# --------------------------------------------------------------------------------------------------------------------- metrics


def running_pod(started: str = "2026-01-01T00:00:00Z", **annotations: str) -> JSONObject:
    states = [{"running": {"startedAt": started}}, {"terminated": {"exitCode": 0}}]
    statuses = [{"name": name, "state": state} for name, state in zip(("c", "done"), states, strict=True)]
    metadata = {
        "name": "p",
        "namespace": "shop",
        "annotations": {PREFIX + name.replace("_", "-"): value for name, value in annotations.items()},
    }
    return {"metadata": metadata, "status": {"containerStatuses": statuses}}


def usage_of(tree: JSONObject, seconds: int) -> dict[str, str] | None:
    metrics = pod_metrics(tree, Simulation.from_pod(tree), NOW.replace(second=seconds))
    if metrics is None:
        return None
    (container,) = metrics["containers"]
    usage: dict[str, str] = container["usage"]
    return usage


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        pytest.param(running_pod(), {"cpu": "1000000n", "memory": "16384Ki"}, id="an idle container"),
        pytest.param(
            running_pod(cpu_usage="250m", memory_usage="64Mi+1Mi/s"), {"cpu": "250000000n", "memory": "75776Ki"}, id="constant and growing"
        ),
        pytest.param({"metadata": {"name": "p"}, "status": {}}, None, id="a pod that does not run has no metrics"),
    ],
)
def test_pod_metrics(tree: JSONObject, expected: dict[str, str] | None) -> None:
    assert usage_of(tree, 10) == expected


def test_a_node_uses_what_its_pods_use_and_more() -> None:
    tree = running_pod(cpu_usage="250m", memory_usage="64Mi")
    metrics = pod_metrics(tree, Simulation.from_pod(tree), NOW)
    assert metrics is not None
    node = node_metrics({"metadata": {"name": "n"}}, [metrics, metrics], {"cpu": UsageFunction(0.5)}, NOW)
    assert node["usage"] == {"cpu": "1000000000n", "memory": f"{128 * 1024}Ki"}
    assert math.isclose(int(node["usage"]["memory"].removesuffix("Ki")) / 1024, 128)
