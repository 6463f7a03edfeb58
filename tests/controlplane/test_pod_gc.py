"""Pod garbage collection: which pods it deletes, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from kubeloop.api.core.v1 import Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus, Taint
from kubeloop.client import ALL_NAMESPACES
from kubeloop.controlplane.nodes.pod_gc import OUT_OF_SERVICE, PodGarbageCollector, stranded, surplus
from kubeloop.meta import NotFound, ObjectMeta
from tests.controlplane.simulated import simulation
from tests.controlplane.workloads import pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FINALIZER = "example.com/seen"


def ended(name: str, age: int, *, reason: str = "", phase: Literal["Failed", "Running", "Succeeded"] = "Succeeded") -> Pod:
    metadata = ObjectMeta(name=name, namespace="shop", creation_timestamp=NOW - timedelta(seconds=age))
    return Pod(metadata=metadata, status=PodStatus(phase=phase, reason=reason or None))


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        pytest.param(0, [], id="without a threshold no ended pod is surplus"),
        pytest.param(4, [], id="as many ended pods as the threshold stay"),
        pytest.param(3, ["evicted"], id="an evicted pod goes before older ones"),
        pytest.param(1, ["evicted", "old-a", "old-b"], id="then the oldest go, by name where the age is the same"),
    ],
)
def test_surplus(threshold: int, expected: list[str]) -> None:
    pods = [ended("young", 1), ended("old-b", 9), ended("old-a", 9), ended("evicted", 2, phase="Failed", reason="Evicted")]
    pods.append(ended("running", 99, phase="Running"))
    assert [one.metadata.name for one in surplus(pods, threshold)] == expected


@pytest.mark.parametrize(
    ("deleting", "node", "ready", "tainted", "expected"),
    [
        pytest.param(True, "", True, False, True, id="a terminating pod without a node is stranded"),
        pytest.param(False, "", True, False, False, id="a pod that waits for a node is not"),
        pytest.param(True, "n", False, True, True, id="a terminating pod on a node that is out of service is stranded"),
        pytest.param(True, "n", True, True, False, id="not while the node is ready"),
        pytest.param(True, "n", False, False, False, id="nor without the taint"),
        pytest.param(False, "n", False, True, False, id="nor while the pod is not terminating"),
        pytest.param(True, "gone", False, False, False, id="a missing node is the quarantine's"),
    ],
)
def test_stranded(deleting: bool, node: str, ready: bool, tainted: bool, expected: bool) -> None:
    metadata = ObjectMeta(name="p", deletion_timestamp=NOW if deleting else None)
    taints = [Taint(key=OUT_OF_SERVICE, effect="NoExecute")] if tainted else []
    status = NodeStatus(conditions=[NodeCondition(type="Ready", status="True" if ready else "False")])
    nodes = {"n": Node(metadata=ObjectMeta(name="n"), spec=NodeSpec(taints=taints), status=status)}
    found = stranded([Pod(metadata=metadata, spec=PodSpec(node_name=node or None))], nodes)
    assert bool(found) is expected


async def test_a_pod_on_a_missing_node_is_failed_and_deleted_after_the_quarantine() -> None:
    async with simulation(PodGarbageCollector()) as cluster:
        made = pod("p", node_name="gone")
        made.metadata.finalizers = [FINALIZER]  # So that the test sees what the pod became.
        begun = cluster.clock.now()
        await cluster.client.create(made)
        found = await cluster.drive(cluster.client.wait_for(Pod, "p", lambda pod: pod.metadata.deletion_timestamp, timeout=200))
        assert 40 <= cluster.clock.now() - begun <= 61
        assert (found.status.phase, found.status.observed_generation) == ("Failed", 1)
        (condition,) = [one for one in found.status.conditions if one.type == "DisruptionTarget"]
        assert (condition.status, condition.reason, condition.message) == ("True", "DeletionByPodGC", "PodGC: node no longer exists")
        assert found.metadata.deletion_grace_period_seconds == 0


async def test_a_node_that_returns_within_the_quarantine_keeps_its_pods() -> None:
    async with simulation(PodGarbageCollector()) as cluster:
        await cluster.client.create(pod("p", node_name="late"))
        await cluster.drive(cluster.clock.sleep(30))
        await cluster.add_node("late")
        await cluster.drive(cluster.clock.sleep(200))
        assert (await cluster.client.get(Pod, "p")).metadata.deletion_timestamp is None


async def test_ended_pods_beyond_the_threshold_go_with_the_next_sweep() -> None:
    async with simulation(PodGarbageCollector(threshold=1)) as cluster:
        await cluster.add_node("n")
        for name in ("a", "b", "c"):
            await cluster.client.create(pod(name, node_name="n"))
        for name in ("a", "b"):
            await cluster.client.patch(Pod, name, {"status": {"phase": "Succeeded"}}, subresource="status")
        await cluster.drive(cluster.client.wait_gone(Pod, "a", timeout=100))
        await cluster.drive(cluster.clock.sleep(100))
        assert sorted(one.metadata.name for one in await cluster.client.list(Pod, namespace=ALL_NAMESPACES)) == ["b", "c"]
        with pytest.raises(NotFound):
            await cluster.client.get(Pod, "a")
