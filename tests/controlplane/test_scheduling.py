"""Scheduling and simulated nodes over an API server: where pods go, what they become, how they end."""

from collections import Counter

import pytest

from kubeloop.api.core.v1 import (
    Event,
    Node,
    NodeSpec,
    Pod,
    PodReadinessGate,
    PodSchedulingGate,
    ResourceRequirements,
    Service,
    ServicePort,
    ServiceSpec,
    Taint,
    Toleration,
)
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta, Quantity
from tests.controlplane.workloads import is_ready, pod

pytestmark = pytest.mark.server


def condition(pod: Pod, kind: str) -> tuple[str, str | None] | None:
    return next(((each.status, each.reason) for each in pod.status.conditions if each.type == kind), None)


async def add_node(client: Client, name: str, labels: dict[str, str] | None = None, taints: list[Taint] | None = None) -> Node:
    """A ready node of which no kubelet takes care; removed after the test."""
    made = Node(metadata=ObjectMeta(name=name, labels={"test": client.namespace, **(labels or {})}), spec=NodeSpec(taints=taints or []))
    await client.create(made)
    # Controllers write the node at the same time.
    room = {"pods": "110"}
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": room, "allocatable": room}}
    await client.patch(Node, name, ready, type="strategic", subresource="status")

    def remove_not_ready(node: Node) -> None:
        node.spec.taints = [taint for taint in node.spec.taints if taint.key != "node.kubernetes.io/not-ready"]

    return await client.update_with_retry(Node, name, remove_not_ready)  # A controller may remove it at the same time.


async def test_the_simulated_node_is_ready_and_says_what_it_is(client: Client) -> None:
    node = await client.wait_for(Node, "kubeloop-node", lambda node: node.status.conditions, timeout=10)
    assert {one.type: one.status for one in node.status.conditions}["Ready"] == "True"
    assert node.status.node_info is not None
    assert node.status.node_info.container_runtime_version.startswith("kubeloop://")
    assert node.spec.taints == []


async def test_a_pod_is_bound_to_the_node_and_becomes_running_and_ready(client: Client) -> None:
    await client.create(pod("p"))
    running = await client.wait_for(Pod, "p", is_ready, timeout=10)
    assert running.spec.node_name == "kubeloop-node"
    status = running.status
    assert (status.phase, bool(status.start_time), status.host_ip) == ("Running", True, "10.0.0.10")
    assert (status.pod_ip or "").startswith("10.244.")
    assert {one.type: one.status for one in status.conditions} == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"), "True"
    )
    (container,) = status.container_statuses
    assert (container.name, container.ready, container.started, container.restart_count) == ("c", True, True, 0)
    assert container.state is not None
    assert container.state.running is not None


async def test_pods_have_different_addresses(client: Client) -> None:
    for number in range(5):
        await client.create(pod(f"p{number}"))
    found = [await client.wait_for(Pod, f"p{number}", is_ready, timeout=10) for number in range(5)]
    assert len({one.status.pod_ip for one in found}) == 5


async def test_a_pod_that_fits_nowhere_gets_a_reason_and_starts_when_a_node_fits(client: Client) -> None:
    await client.create(pod("p", node_selector={"disk": client.namespace}))
    refused = await client.wait_for(Pod, "p", lambda pod: condition(pod, "PodScheduled"), timeout=10)
    assert condition(refused, "PodScheduled") == ("False", "Unschedulable")
    (message,) = [one.message or "" for one in refused.status.conditions]
    assert message.startswith("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector")
    await add_node(client, f"{client.namespace}-disk", {"disk": client.namespace})
    bound = await client.wait_for(Pod, "p", lambda pod: pod.spec.node_name, timeout=10)
    assert bound.spec.node_name == f"{client.namespace}-disk"
    assert condition(bound, "PodScheduled") == ("True", None)
    await client.delete(Pod, "p", grace_period_seconds=0)


async def test_cordoned_and_tainted_nodes_take_only_pods_that_tolerate_it(client: Client) -> None:
    labels = {"only": client.namespace}
    taint = Taint(key="team", value="a", effect="NoSchedule")
    await add_node(client, f"{client.namespace}-tainted", labels, [taint])
    await client.create(pod("refused", node_selector=labels))
    await client.wait_for(Pod, "refused", lambda pod: condition(pod, "PodScheduled") == ("False", "Unschedulable"), timeout=10)
    tolerating = pod("tolerating", node_selector=labels, tolerations=[Toleration(key="team", value="a", effect="NoSchedule")])
    await client.create(tolerating)
    await client.wait_for(Pod, "tolerating", lambda pod: pod.spec.node_name, timeout=10)
    await client.patch(Node, f"{client.namespace}-tainted", {"spec": {"unschedulable": True, "taints": None}})
    cordoned = await client.wait_for(Pod, "refused", lambda pod: "unschedulable" in str(pod.status.conditions), timeout=10)
    assert cordoned.spec.node_name is None
    for name in ("refused", "tolerating"):
        await client.delete(Pod, name, grace_period_seconds=0)


async def test_pods_of_another_scheduler_are_left_alone(client: Client) -> None:
    await client.create(pod("other", scheduler_name="mine"))
    await client.create(pod("p"))
    await client.wait_for(Pod, "p", is_ready, timeout=10)
    assert (await client.get(Pod, "other")).status.conditions == []


async def test_a_pod_with_a_readiness_gate_is_ready_when_its_condition_is_set(client: Client) -> None:
    await client.create(pod("p", readiness_gates=[PodReadinessGate(condition_type="example.com/open")]))
    held = await client.wait_for(Pod, "p", lambda pod: condition(pod, "ContainersReady") == ("True", None), timeout=10)
    assert condition(held, "Ready") == ("False", "ReadinessGatesNotReady")
    opened = {"status": {"conditions": [{"type": "example.com/open", "status": "True"}]}}
    await client.patch(Pod, "p", opened, type="strategic", subresource="status")
    await client.wait_for(Pod, "p", is_ready, timeout=10)


async def test_a_deleted_pod_goes_without_waiting_for_its_grace_period(client: Client) -> None:
    await client.create(pod("p", termination_grace_period_seconds=30))
    await client.wait_for(Pod, "p", is_ready, timeout=10)
    answer = (await client.delete(Pod, "p")).object
    assert answer is not None
    assert answer.metadata.deletion_grace_period_seconds == 30
    await client.wait_gone(Pod, "p", timeout=5)


async def test_events_show_what_happened_to_a_pod(client: Client) -> None:
    await client.create(pod("p"))
    await client.wait_for(Pod, "p", is_ready, timeout=10)
    async with client.watch(Event, namespace=client.namespace) as events:
        seen: dict[str | None, str | None] = {}
        async for event in events:
            if event.object.involved_object.name == "p":
                seen[event.object.reason] = event.object.message
            if {"Scheduled", "Started"} <= seen.keys():
                break
    assert seen["Scheduled"] == f"Successfully assigned {client.namespace}/p to kubeloop-node"
    assert seen["Started"] == "Container started"


async def test_a_pod_of_higher_priority_preempts(client: Client) -> None:
    labels = {"only": client.namespace}
    await add_node(client, f"{client.namespace}-small", labels)
    room = {"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}}}
    await client.patch(Node, f"{client.namespace}-small", room, subresource="status")
    low = pod("low", node_selector=labels, termination_grace_period_seconds=0)
    high = pod("high", node_selector=labels, priority_class_name="system-node-critical")
    for one in (low, high):
        one.spec.containers[0].resources = ResourceRequirements(requests={"cpu": Quantity("1")})
    await client.create(low)
    await client.wait_for(Pod, "low", lambda pod: pod.spec.node_name, timeout=10)
    await client.create(high)
    await client.wait_for(Pod, "high", lambda pod: pod.spec.node_name, timeout=10)
    await client.wait_gone(Pod, "low", timeout=5)
    await client.delete(Pod, "high", grace_period_seconds=0)


async def test_pods_of_a_service_are_spread_over_nodes(client: Client) -> None:
    labels = {"only": client.namespace}
    for name in "ab":
        await add_node(client, f"{client.namespace}-{name}", labels)
    ports = [ServicePort(port=80)]
    await client.create(Service(metadata=ObjectMeta(name="web"), spec=ServiceSpec(selector={"app": "web"}, ports=ports)))
    names = [f"p{number}" for number in range(4)]
    for name in names:
        await client.create(pod(name, {"app": "web"}, node_selector=labels))
    found = [await client.wait_for(Pod, name, lambda pod: pod.spec.node_name, timeout=10) for name in names]
    assert sorted(Counter(one.spec.node_name for one in found).values()) == [2, 2]
    for name in names:
        await client.delete(Pod, name, grace_period_seconds=0)


async def test_pods_with_gates_wait_until_the_gates_are_gone(client: Client) -> None:
    await client.create(pod("p", scheduling_gates=[PodSchedulingGate(name="example.com/wait")]))
    gated = await client.get(Pod, "p")
    assert condition(gated, "PodScheduled") == ("False", "SchedulingGated")
    await client.patch(Pod, "p", {"spec": {"schedulingGates": None}})
    await client.wait_for(Pod, "p", is_ready, timeout=10)
