"""Nodes that are lost, come back, report pressure or are cordoned: their conditions and taints, and the pods on them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubeloop.api.coordination.v1 import Lease, LeaseSpec
from kubeloop.api.core.v1 import Container, Event, Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodSpec, Taint
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.controlplane.nodes.node_health import (
    Effect,
    EvictionQueue,
    EvictionRates,
    HealthRecord,
    Heartbeats,
    Zones,
    ZoneState,
    beta_labels,
    eviction_taints,
    lost_conditions,
    record_heartbeats,
    scheduling_taints,
    zone_of,
)
from kubeloop.controlplane.nodes.node_lifecycle import LEASES, NodeLifecycleController
from kubeloop.meta import ObjectMeta
from tests.controlplane.kills import KillScenario, assert_survives_kills
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.workloads import pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READY = "node.kubernetes.io/not-ready"
LOST = "node.kubernetes.io/unreachable"
CORDONED = "node.kubernetes.io/unschedulable"
NEW = [Taint(key=READY, effect="NoSchedule")]


def added(key: str, effect: Effect = "NoSchedule") -> Taint:
    return Taint(key=key, effect=effect, time_added=NOW)


def node(taints: list[Taint], *, unschedulable: bool = False, **conditions: str) -> Node:
    reported = [NodeCondition(type=kind, status=status) for kind, status in conditions.items()]
    return Node(spec=NodeSpec(taints=taints, unschedulable=unschedulable), status=NodeStatus(conditions=reported))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(node(NEW), [], id="a node without a status loses the taint of admission, as upstream"),
        pytest.param(node(NEW, Ready="True"), [], id="a node that reports Ready loses the taint of admission"),
        pytest.param(node(NEW, Ready="False"), None, id="a node that is not ready has its taint already"),
        pytest.param(node([], Ready="Unknown"), [added(LOST)], id="a node that is unknown is unreachable"),
        pytest.param(
            node([added(LOST)], Ready="False"),
            [added(READY)],
            id="an unreachable node that reports not ready is reachable",
        ),
        pytest.param(
            node([added(LOST), added(LOST, "NoExecute")], Ready="True"),
            [added(LOST, "NoExecute")],
            id="taints with NoExecute are left to the passes over all nodes",
        ),
        pytest.param(
            node([], Ready="True", MemoryPressure="True", DiskPressure="False"),
            [added("node.kubernetes.io/memory-pressure")],
            id="memory pressure keeps pods away",
        ),
        pytest.param(
            node([], Ready="True", PIDPressure="True", NetworkUnavailable="True", DiskPressure="True"),
            [added(f"node.kubernetes.io/{one}") for one in ("pid-pressure", "network-unavailable", "disk-pressure")],
            id="so do other pressures, in the order of the conditions",
        ),
        pytest.param(node([], unschedulable=True, Ready="True"), [added(CORDONED)], id="a cordoned node is tainted"),
        pytest.param(node([added(CORDONED)], Ready="True"), [], id="an uncordoned node is not"),
        pytest.param(node([Taint(key="gpu", effect="NoSchedule")], Ready="True"), None, id="taints of others are left alone"),
        pytest.param(
            node([Taint(key=READY, effect="PreferNoSchedule"), *NEW], Ready="True"),
            [Taint(key=READY, effect="PreferNoSchedule")],
            id="a taint of the same key with another effect is left alone",
        ),
        pytest.param(node([], Ready="True"), None, id="a node that is as it must be is not written"),
    ],
)
def test_scheduling_taints(before: Node, after: list[Taint] | None) -> None:
    assert scheduling_taints(before, NOW) == after


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        pytest.param([], READY, [added(READY, "NoExecute")], id="the taint is added"),
        pytest.param([added(LOST, "NoExecute"), *NEW], READY, [*NEW, added(READY, "NoExecute")], id="the other taint is replaced"),
        pytest.param([added(LOST, "NoExecute")], "", [], id="the taint of a node that is ready again is removed"),
        pytest.param([added(LOST, "NoExecute")], LOST, None, id="a node that has the taint is not written"),
        pytest.param([Taint(key="gpu", effect="NoExecute")], "", None, id="taints of others are left alone"),
    ],
)
def test_eviction_taints(before: list[Taint], key: str, after: list[Taint] | None) -> None:
    assert eviction_taints(before, key, NOW) == after


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"kubernetes.io/os": "linux"}, {"beta.kubernetes.io/os": "linux"}, id="a missing beta label is added"),
        pytest.param(
            {"kubernetes.io/arch": "amd64", "beta.kubernetes.io/arch": "arm"},
            {"beta.kubernetes.io/arch": "amd64"},
            id="the stable label wins",
        ),
        pytest.param({"beta.kubernetes.io/os": "linux"}, {}, id="a beta label alone is left alone"),
        pytest.param({"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"}, {}, id="equal labels are left alone"),
    ],
)
def test_beta_labels(labels: dict[str, str], expected: dict[str, str]) -> None:
    assert beta_labels(labels) == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({}, "", id="no labels, no zone"),
        pytest.param({"topology.kubernetes.io/zone": "a"}, ":\0:a", id="a zone without a region"),
        pytest.param({"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "a"}, "r:\0:a", id="region and zone"),
        pytest.param(
            {"failure-domain.beta.kubernetes.io/zone": "b", "topology.kubernetes.io/zone": "a"}, ":\0:b", id="the old label comes first"
        ),
    ],
)
def test_zone_of(labels: dict[str, str], expected: str) -> None:
    assert zone_of(labels) == expected


@pytest.mark.parametrize(
    ("before", "heartbeats", "seen"),
    [
        pytest.param(None, Heartbeats("1", ""), 100.0, id="a node that is new to the controller counts from now on"),
        pytest.param(None, Heartbeats(None, ""), 70.0, id="a node that never reported counts from its creation on"),
        pytest.param(HealthRecord(Heartbeats("1", "5"), 40.0), Heartbeats("1", "5"), 40.0, id="no new sign of life"),
        pytest.param(HealthRecord(Heartbeats("1", "5"), 40.0), Heartbeats("1", "6"), 100.0, id="a renewed Lease"),
        pytest.param(HealthRecord(Heartbeats("1", "5"), 40.0), Heartbeats("2", "5"), 100.0, id="a reported status"),
        pytest.param(HealthRecord(Heartbeats("1", "5"), 40.0), Heartbeats("1", ""), 40.0, id="a deleted Lease is no sign of life"),
        pytest.param(HealthRecord(Heartbeats(None, ""), 40.0), Heartbeats("1", ""), 100.0, id="the first status"),
    ],
)
def test_record_heartbeats(before: HealthRecord | None, heartbeats: Heartbeats, seen: float) -> None:
    assert record_heartbeats(before, heartbeats, 100.0, 30.0).seen == seen


def test_the_conditions_of_a_lost_node_are_unknown_but_for_the_network() -> None:
    conditions = lost_conditions(node([], Ready="True", NetworkUnavailable="False", MemoryPressure="Unknown"), NOW)
    assert {one.type: (one.status, one.reason) for one in conditions or ()} == {
        "Ready": ("Unknown", "NodeStatusUnknown"),
        "NetworkUnavailable": ("False", None),
        "MemoryPressure": ("Unknown", None),
        "DiskPressure": ("Unknown", "NodeStatusNeverUpdated"),
        "PIDPressure": ("Unknown", "NodeStatusNeverUpdated"),
    }
    assert lost_conditions(node([], Ready="Unknown"), NOW) is None


@pytest.mark.parametrize(
    ("ready", "failed", "state", "rate"),
    [
        pytest.param(3, 0, "Normal", 0.1, id="all ready"),
        pytest.param(1, 2, "Normal", 0.1, id="two of three failed: three have to fail"),
        pytest.param(2, 3, "PartialDisruption", 0.0, id="a small zone with many failures is not tainted"),
        pytest.param(20, 40, "PartialDisruption", 0.01, id="a large zone with many failures is tainted slowly"),
        pytest.param(46, 54, "Normal", 0.1, id="just below the threshold"),
        pytest.param(0, 1, "FullDisruption", 0.1, id="all failed"),
    ],
)
def test_zone_states_and_rates(ready: int, failed: int, state: ZoneState, rate: float) -> None:
    rates = EvictionRates()
    assert rates.zone_state(["True"] * ready + ["False"] * failed) == state
    assert rates.of_zone(state, ready + failed) == rate


def test_a_queue_returns_one_node_in_ten_seconds_in_order() -> None:
    queue = EvictionQueue(0.1)
    for name in ("a", "b", "a", "c"):
        queue.add(name)
    queue.remove("c")
    assert [queue.take(now) for now in (0.0, 5.0, 10.0, 20.0)] == ["a", None, "b", None]
    queue.add("d")
    queue.set_rate(0.0, 20.0)
    assert (queue.take(90.0), queue.seconds(90.0)) == (None, None)


def test_no_node_is_tainted_while_all_zones_are_disrupted() -> None:
    zones = Zones()
    assert zones.update({"a": ["True"], "b": ["True"]}, 0.0) == ""
    assert zones.update({"a": ["True"], "b": ["False"]}, 0.0) == ""
    assert zones.update({"a": ["False"], "b": ["False"]}, 0.0) == "entered"
    assert {queue.rate for queue in zones.queues()} == {0.0}
    assert zones.update({"a": ["False"], "b": ["Unknown"]}, 0.0) == ""
    assert zones.update({"a": ["True"], "b": ["Unknown"]}, 0.0) == "left"
    assert {queue.rate for queue in zones.queues()} == {0.1}
    assert zones.update({"a": ["True"], "b": ["True"]}, 0.0) == ""
    assert zones.update({"b": ["True"]}, 0.0) == ""
    assert zones.states == {"b": "Normal"}


# ------------------------------------------------------------------------------------------------------------------ by fake time


async def read_node(cluster: FakeTimeCluster, name: str) -> tuple[str, set[tuple[str, str]]]:
    """Return the status of the condition Ready of a node, and its taints."""
    stored = await cluster.client.get(Node, name)
    ready = next((one.status for one in stored.status.conditions if one.type == "Ready"), "")
    return ready, {(one.key.removeprefix("node.kubernetes.io/"), one.effect) for one in stored.spec.taints}


async def renew(cluster: FakeTimeCluster, name: str) -> None:
    change = {"spec": {"renewTime": cluster.clock.wall().isoformat(timespec="microseconds").replace("+00:00", "Z")}}
    await cluster.client.patch(Lease, name, change, namespace=LEASES)


async def add_lease(cluster: FakeTimeCluster, name: str) -> None:
    await cluster.client.create(Lease(metadata=ObjectMeta(name=name, namespace=LEASES), spec=LeaseSpec(holder_identity=name)))


UNREACHABLE = {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}


async def test_a_node_without_heartbeats_is_lost_and_comes_back() -> None:
    async with simulation(NodeLifecycleController()) as cluster:
        for name in ("near", "far"):
            await cluster.add_node(name)
            await add_lease(cluster, name)
        await cluster.client.create(ready_pod("p", "far"))
        await set_pod_ready(cluster, "p")
        for _ in range(4):
            await cluster.pass_time(20)
            await renew(cluster, "near")
        assert await read_node(cluster, "near") == ("True", set())
        assert await read_node(cluster, "far") == ("Unknown", UNREACHABLE)
        lost = await cluster.client.get(Pod, "p")
        assert [(one.type, one.status) for one in lost.status.conditions if one.type == "Ready"] == [("Ready", "False")]
        assert {(one.reason, one.message) for one in await cluster.client.list(Event, namespace=ALL_NAMESPACES)} >= {
            ("NodeNotReady", "Node far status is now: NodeNotReady"),
            ("NodeNotReady", "Node is not ready"),
            ("RegisteredNode", "Node far event: Registered Node far in Controller"),
        }
        await renew(cluster, "far")
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T01:00:00Z"}
        await cluster.client.patch(Node, "far", {"status": {"conditions": [condition]}}, type="strategic", subresource="status")
        await cluster.pass_time(6)
        assert await read_node(cluster, "far") == ("True", set())


def ready_pod(name: str, node_name: str) -> Pod:
    return pod(name, node_name=node_name)


async def set_pod_ready(cluster: FakeTimeCluster, name: str) -> None:
    change = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await cluster.client.patch(Pod, name, change, type="strategic", subresource="status")


async def test_the_last_node_of_a_cluster_is_not_tainted_for_eviction() -> None:
    async with simulation(NodeLifecycleController()) as cluster:
        await cluster.add_node("only")
        await cluster.pass_time(60)
        assert await read_node(cluster, "only") == ("Unknown", {("unreachable", "NoSchedule")})


async def test_lost_nodes_are_tainted_one_in_ten_seconds() -> None:
    async with simulation(NodeLifecycleController()) as cluster:
        for name in ("near", "b", "c"):
            await cluster.add_node(name)
        await add_lease(cluster, "near")
        counts = []
        for _ in range(8):
            await cluster.pass_time(10)
            await renew(cluster, "near")
            counts.append(sum([("unreachable", "NoExecute") in (await read_node(cluster, name))[1] for name in ("b", "c")]))
        assert counts == [0, 0, 0, 0, 0, 0, 1, 2]


async def test_a_node_that_never_reports_is_lost_after_a_minute() -> None:
    async with simulation(NodeLifecycleController()) as cluster:
        await cluster.client.create(Node(metadata=ObjectMeta(name="silent")))
        await cluster.pass_time(50)
        assert (await read_node(cluster, "silent"))[0] == ""
        await cluster.pass_time(20)
        stored = await cluster.client.get(Node, "silent")
        assert {one.type: one.reason for one in stored.status.conditions} == dict.fromkeys(
            ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"), "NodeStatusNeverUpdated"
        )
        assert stored.status.conditions[0].message == "Kubelet never posted node status."


async def test_a_node_gets_beta_labels_and_a_deleted_node_is_reported() -> None:
    async with simulation(NodeLifecycleController()) as cluster:
        await cluster.add_node("n", labels={"kubernetes.io/os": "linux"})
        await cluster.pass_time(6)
        assert (await cluster.client.get(Node, "n")).metadata.labels["beta.kubernetes.io/os"] == "linux"
        await cluster.client.delete(Node, "n")
        await cluster.pass_time(6)
        reasons = [one.reason for one in await cluster.client.list(Event, namespace=ALL_NAMESPACES)]
        assert sorted(map(str, reasons)) == ["RegisteredNode", "RemovingNode"]


async def test_a_program_that_was_stopped_for_long_loses_no_node() -> None:
    controller = NodeLifecycleController()
    async with simulation(controller) as cluster:
        await cluster.add_node("n")
        await cluster.pass_time(20)
        controller.pause()
        await cluster.pass_time(200)
        controller.resume()
        await cluster.pass_time(6)
        assert (await read_node(cluster, "n"))[0] == "True"


async def lose_a_node(cluster: FakeTimeCluster) -> None:
    for name in ("near", "far"):
        await cluster.add_node(name)
        await add_lease(cluster, name)
    await cluster.client.create(ready_pod("p", "far"))
    await set_pod_ready(cluster, "p")
    for _ in range(16):
        await cluster.pass_time(10)
        await renew(cluster, "near")


async def test_a_lost_node_ends_in_the_same_state_wherever_the_controller_is_killed() -> None:
    writes = await assert_survives_kills(KillScenario(lambda: [NodeLifecycleController()], lose_a_node, (Node, Pod), settle=10))
    assert len(writes) == 4  # conditions, two taints, one pod


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
        await client.wait_for(Node, name, lambda node: not node.spec.taints, timeout=60)
        await client.wait_for(Pod, "p", lambda pod: pod.spec.node_name == name, timeout=60)
        await report("False")
        marks = {(READY, "NoSchedule"), (READY, "NoExecute")}
        await client.wait_for(Node, name, lambda node: {(one.key, one.effect) for one in node.spec.taints} == marks, timeout=60)
    finally:
        await client.delete(Pod, "p", grace_period_seconds=0)
