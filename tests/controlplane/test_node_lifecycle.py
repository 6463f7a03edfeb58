"""Taints of nodes follow their conditions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubeloop.api.core.v1 import Container, Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodSpec, Taint
from kubeloop.client import Client
from kubeloop.controlplane.node_lifecycle import Effect, taints_of
from kubeloop.meta import ObjectMeta

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READY = "node.kubernetes.io/not-ready"
LOST = "node.kubernetes.io/unreachable"
CORDONED = "node.kubernetes.io/unschedulable"
NEW = [Taint(key=READY, effect="NoSchedule")]


def added(key: str, effect: Effect) -> Taint:
    return Taint(key=key, effect=effect, time_added=NOW)


def node(taints: list[Taint], *, unschedulable: bool = False, **conditions: str) -> Node:
    found = [NodeCondition(type=type_, status=status) for type_, status in conditions.items()]
    return Node(spec=NodeSpec(taints=taints, unschedulable=unschedulable), status=NodeStatus(conditions=found))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(node(NEW), None, id="a new node that has not reported its status keeps the taint of admission"),
        pytest.param(node(NEW, Ready="True"), [], id="a node that reports Ready loses the taint of admission"),
        pytest.param(
            node(NEW, Ready="False"),
            [*NEW, added(READY, "NoExecute")],
            id="a node that is not ready is tainted for running pods, too",
        ),
        pytest.param(
            node([], Ready="Unknown"),
            [added(LOST, "NoExecute"), added(LOST, "NoSchedule")],
            id="a node that is unknown is unreachable",
        ),
        pytest.param(
            node([added(LOST, "NoExecute"), added(LOST, "NoSchedule")], Ready="False"),
            [added(READY, "NoExecute"), added(READY, "NoSchedule")],
            id="an unreachable node that reports that it is not ready is not unreachable any more",
        ),
        pytest.param(
            node([added(LOST, "NoExecute"), added(LOST, "NoSchedule")], Ready="True"), [], id="an unreachable node that comes back is free"
        ),
        pytest.param(
            node([], Ready="True", MemoryPressure="True", DiskPressure="False"),
            [added("node.kubernetes.io/memory-pressure", "NoSchedule")],
            id="memory pressure keeps pods away",
        ),
        pytest.param(
            node([], Ready="True", PIDPressure="True", NetworkUnavailable="True", DiskPressure="True"),
            [added(f"node.kubernetes.io/{one}", "NoSchedule") for one in ("disk-pressure", "network-unavailable", "pid-pressure")],
            id="so do other pressures",
        ),
        pytest.param(node([], unschedulable=True, Ready="True"), [added(CORDONED, "NoSchedule")], id="a cordoned node is tainted"),
        pytest.param(node([added(CORDONED, "NoSchedule")], Ready="True"), [], id="an uncordoned node is not"),
        pytest.param(node([Taint(key="gpu", effect="NoSchedule")], Ready="True"), None, id="taints of others are left alone"),
        pytest.param(
            node([Taint(key=READY, effect="PreferNoSchedule"), *NEW], Ready="True"),
            [Taint(key=READY, effect="PreferNoSchedule")],
            id="a taint of the same key with another effect is left alone",
        ),
        pytest.param(node([], Ready="True"), None, id="a node that is as it must be is not written"),
    ],
)
def test_taints_of(before: Node, after: list[Taint] | None) -> None:
    assert taints_of(before, NOW) == after


@pytest.mark.server
async def test_a_node_of_the_users_own_gets_pods_once_it_reports_ready_and_taints_when_it_does_not(client: Client) -> None:
    name = f"{client.namespace}-own"
    await client.create(Node(metadata=ObjectMeta(name=name, labels={"test": client.namespace or ""})))
    spec = PodSpec(node_selector={"test": client.namespace or ""}, containers=[Container(name="c", image="none")])
    await client.create(Pod(metadata=ObjectMeta(name="p"), spec=spec))

    async def report(status: str) -> None:
        condition = {"type": "Ready", "status": status, "reason": "Test", "message": ""}
        room = {"cpu": "8", "memory": "8Gi", "pods": "10"}
        change = {"status": {"conditions": [condition], "allocatable": room, "capacity": room}}
        await client.patch(Node, name, change, type="strategic", subresource="status")

    try:
        await report("True")
        await client.wait_for(Node, name, lambda found: not found.spec.taints, timeout=60)
        await client.wait_for(Pod, "p", lambda pod: pod.spec.node_name == name, timeout=60)
        await report("False")
        marks = {(READY, "NoSchedule"), (READY, "NoExecute")}
        await client.wait_for(Node, name, lambda found: {(one.key, one.effect) for one in found.spec.taints} == marks, timeout=60)
    finally:
        await client.delete(Pod, "p", grace_period_seconds=0)
