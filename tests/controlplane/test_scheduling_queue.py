"""The scheduling queue: order, back-off, and which events make which pods try again."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controlplane.scheduling.cluster_events import Action, ClusterEvent, node_events, pod_events
from kubeloop.controlplane.scheduling.configuration import default_profile
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts, claim_facts
from kubeloop.controlplane.scheduling.queue import LONGEST_WAIT, QueuedPod, SchedulingQueue
from kubeloop.types import JSONObject
from tests.controlplane.scheduling import HOSTNAME, WEB, ZONE, cluster, near, node, pod, spread
from tests.controlplane.storage import claim

FIT = frozenset({"NodeResourcesFit"})
EVENT = ClusterEvent("Node", Action.ADD)


class Everything:
    """Hints by which each event helps each pod that the plugin named in its kind refused."""

    def is_interested(self, plugins: frozenset[str], event: ClusterEvent) -> bool:
        return event.kind in plugins

    def may_help(self, queued: QueuedPod, event: ClusterEvent) -> bool:
        return queued.facts.name in (event.new or queued.facts.name)


def queue_of(*pods: PodFacts) -> SchedulingQueue:
    made = SchedulingQueue(Everything(), lambda pod: bool(pod.gates))
    for one in pods:
        made.add(one, 0.0)
    return made


def names(queue: SchedulingQueue, now: float = 0.0) -> list[str]:
    """Take all pods that can be scheduled."""
    result = []
    while (queued := queue.pop(now)) is not None:
        result.append(queued.facts.name)
    return result


def refused(queue: SchedulingQueue, now: float, plugin: str = "NodeResourcesFit") -> QueuedPod:
    queued = queue.pop(now)
    assert queued is not None
    queue.refuse(queued, frozenset({plugin}), now)
    return queued


def test_pods_of_higher_priority_come_first_and_then_the_oldest() -> None:
    queue = queue_of(pod("a"), pod("b", priority=5))
    queue.add(pod("c"), 1.0)
    queue.add(pod("d", priority=5), 1.0)
    assert names(queue, 1.0) == ["b", "d", "a", "c"]


def test_a_refused_pod_waits_for_an_event_that_concerns_its_plugins() -> None:
    queue = queue_of(pod("a"))
    refused(queue, 0.0)
    assert names(queue, 200.0) == []
    assert queue.move(ClusterEvent("NodePorts", Action.ADD), 200.0) == 0
    assert queue.move(ClusterEvent("NodeResourcesFit", Action.ADD), 200.0) == 1
    assert names(queue, 200.0) == ["a"]


def test_a_pod_that_no_event_helps_is_tried_after_five_minutes() -> None:
    queue = queue_of(pod("a"))
    refused(queue, 10.0)
    assert queue.next_wake() == 10.0 + LONGEST_WAIT
    assert names(queue, 309.0) == []
    assert names(queue, 310.0) == ["a"]


def test_the_back_off_after_errors_doubles_from_one_to_ten_seconds() -> None:
    queue, delays, now = queue_of(pod("a")), [], 0.0
    for _ in range(6):
        queued = queue.pop(now)
        assert queued is not None
        queue.fail(queued, now)
        wake = queue.next_wake()
        assert wake is not None
        assert names(queue, wake - 0.01) == []
        delays.append(wake - now)
        now = wake
    assert delays == [1, 2, 4, 8, 10, 10]


def test_a_pod_in_back_off_after_a_refusal_is_tried_when_no_other_pod_is_active() -> None:
    queue = queue_of(pod("a"))
    refused(queue, 0.0)
    queue.move(ClusterEvent("NodeResourcesFit", Action.ADD), 0.1)
    queue.add(pod("b"), 0.2)
    assert names(queue, 0.2) == ["b", "a"]


def test_a_refusal_ends_a_row_of_errors() -> None:
    queue = queue_of(pod("a"))
    queued = queue.pop(0.0)
    assert queued is not None
    queue.fail(queued, 0.0)
    queue.fail(queued, 0.0)
    queue.refuse(queued, FIT, 0.0)
    assert queue.backoff(queued) == 1.0


def test_a_refused_pod_that_is_tried_again_without_an_event_waits_for_its_back_off() -> None:
    queue = queue_of(pod("a"))
    queued = refused(queue, 0.0)
    queue.retry(queued, 0.0)
    assert queue.move(ClusterEvent("NodeResourcesFit", Action.ADD), 0.5) == 0
    assert (names(queue, 0.9), names(queue, 1.0), queue.next_wake()) == ([], ["a"], None)


def test_a_gated_pod_waits_until_its_gates_are_gone_whatever_happens() -> None:
    queue = queue_of(pod("a", schedulingGates=[{"name": "g"}]))
    queue.move(ClusterEvent("NodeResourcesFit", Action.ADD), 0.0)
    assert names(queue, 1000.0) == []
    queue.update(pod("a"), [], 1000.0)
    assert names(queue, 1000.0) == ["a"]


def test_a_removed_pod_is_not_scheduled() -> None:
    queue = queue_of(pod("a"), pod("b"))
    queue.remove("a")
    assert (names(queue), "a" in queue) == (["b"], False)


def test_a_changed_priority_counts_for_a_pod_that_waits() -> None:
    queue = queue_of(pod("a"), pod("b"))
    queue.update(pod("b", priority=1), [], 0.0)
    assert names(queue) == ["b", "a"]


def test_a_change_of_the_pod_itself_makes_it_try_again_if_it_may_help() -> None:
    queue = queue_of(pod("a"))
    refused(queue, 0.0)
    queue.update(pod("a"), [ClusterEvent("NodePorts", Action.UPDATE)], 5.0)
    assert names(queue, 5.0) == []
    queue.update(pod("a"), [ClusterEvent("NodeResourcesFit", Action.UPDATE)], 5.0)
    assert names(queue, 5.0) == ["a"]


def test_an_activated_pod_is_tried_at_once() -> None:
    queue = queue_of(pod("a"))
    refused(queue, 0.0)
    queue.activate("a")
    assert names(queue, 0.0) == ["a"]


# ---------------------------------------------------------------------------------------------------- hints of the plugins

TAINT: JSONObject = {"key": "team", "value": "a", "effect": "NoSchedule"}
PORT = [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]
OTHER_PORT = [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 81}]}]
CLAIM = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
DATA = claim_facts(claim())


def on(name: str = "q", **fields: Any) -> PodFacts:
    return pod(name, nodeName="n", **fields)


def changed(old: NodeFacts | PodFacts | None, new: NodeFacts | PodFacts | None) -> list[ClusterEvent]:
    subject = new if new is not None else old
    if isinstance(subject, NodeFacts):
        assert old is None or isinstance(old, NodeFacts)
        assert new is None or isinstance(new, NodeFacts)
        return list(node_events(old, new))
    assert old is None or isinstance(old, PodFacts)
    assert new is None or isinstance(new, PodFacts)
    return list(pod_events(old, new))


@pytest.mark.parametrize(
    ("plugin", "waiting", "events", "expected"),
    [
        ("NodeUnschedulable", pod(), changed(node("n", closed=True), node("n")), True),
        ("NodeUnschedulable", pod(), changed(None, node("n", closed=True)), False),
        ("TaintToleration", pod(), changed(node("n", taints=[TAINT]), node("n")), True),
        ("TaintToleration", pod(), changed(None, node("n", taints=[TAINT])), False),
        ("TaintToleration", pod(), changed(node("n", zone="a"), node("n", zone="b")), False),
        ("TaintToleration", pod(), changed(pod(), pod(tolerations=[{"operator": "Exists"}])), True),
        ("NodeAffinity", pod(nodeSelector={"disk": "ssd"}), changed(node("n"), node("n", disk="ssd")), True),
        ("NodeAffinity", pod(nodeSelector={"disk": "ssd"}), changed(node("n", disk="ssd"), node("n", disk="ssd", x="y")), False),
        ("NodeAffinity", pod(nodeSelector={"disk": "ssd"}), changed(None, node("n")), False),
        ("NodePorts", pod(containers=PORT), changed(on(containers=PORT), None), True),
        ("NodePorts", pod(containers=PORT), changed(on(containers=OTHER_PORT), None), False),
        ("NodePorts", pod(containers=PORT), changed(pod("q", containers=PORT), None), False),
        ("NodeResourcesFit", pod(cpu="2"), changed(on(), None), True),
        ("NodeResourcesFit", pod(cpu="2"), changed(pod("q"), None), False),
        ("NodeResourcesFit", pod(cpu="2"), changed(None, on()), False),
        ("NodeResourcesFit", pod(cpu="2"), changed(on(cpu="2"), on(cpu="1")), True),
        ("NodeResourcesFit", pod(cpu="2"), changed(on(memory="2Gi"), on(memory="1Gi")), False),
        ("NodeResourcesFit", pod(cpu="2"), changed(None, node("n")), True),
        ("NodeResourcesFit", pod(cpu="9"), changed(None, node("n")), False),
        ("NodeResourcesFit", pod(cpu="2"), changed(node("n"), node("n", room={"cpu": 5000})), True),
        ("NodeResourcesFit", pod(cpu="2"), changed(node("n"), node("n", room={"memory": 1})), False),
        ("NodeResourcesFit", pod(cpu="2"), changed(node("n"), node("n", zone="a")), False),
        ("InterPodAffinity", pod(affinity=near("podAffinity")), changed(None, on(labels=WEB)), True),
        ("InterPodAffinity", pod(affinity=near("podAffinity")), changed(None, on()), False),
        ("InterPodAffinity", pod(affinity=near("podAntiAffinity")), changed(on(labels=WEB), None), True),
        ("InterPodAffinity", pod(labels=WEB), changed(on(affinity=near("podAntiAffinity")), None), True),
        ("InterPodAffinity", pod(), changed(on(affinity=near("podAntiAffinity")), None), False),
        ("InterPodAffinity", pod(affinity=near("podAffinity")), changed(on(), on(labels=WEB)), True),
        ("InterPodAffinity", pod(affinity=near("podAffinity", key=ZONE)), changed(node("n"), node("n", zone="a")), True),
        ("InterPodAffinity", pod(affinity=near("podAffinity", key=ZONE)), changed(None, node("n")), False),
        ("PodTopologySpread", pod(topologySpreadConstraints=spread()), changed(None, on(labels=WEB)), True),
        ("PodTopologySpread", pod(topologySpreadConstraints=spread()), changed(None, on()), False),
        ("PodTopologySpread", pod(topologySpreadConstraints=spread()), changed(None, on(labels=WEB, namespace="other")), False),
        ("PodTopologySpread", pod(topologySpreadConstraints=spread()), changed(None, node("n", zone="a")), True),
        ("PodTopologySpread", pod(topologySpreadConstraints=spread()), changed(None, node("n")), False),
        ("PodTopologySpread", pod(topologySpreadConstraints=spread(HOSTNAME)), changed(node("n"), None), True),
        ("VolumeBinding", pod(volumes=CLAIM, namespace="default"), [ClusterEvent("PersistentVolumeClaim", Action.ADD, None, DATA)], False),
        ("VolumeBinding", pod(volumes=CLAIM), [ClusterEvent("PersistentVolume", Action.ADD)], True),
        ("VolumeRestrictions", pod(volumes=CLAIM), changed(on(volumes=CLAIM), None), True),
        ("VolumeRestrictions", pod(volumes=CLAIM), changed(on(), None), False),
        ("NodeVolumeLimits", pod(volumes=CLAIM), [ClusterEvent("CSINode", Action.UPDATE, {"d": 1}, {"d": 2})], True),
        ("NodeVolumeLimits", pod(volumes=CLAIM), [ClusterEvent("CSINode", Action.UPDATE, {"d": 2}, {"d": 1})], False),
        ("DynamicResources", pod(), changed(None, node("n")), False),
    ],
)
def test_an_event_helps_the_pods_that_a_plugin_refused(plugin: str, waiting: PodFacts, events: list[ClusterEvent], expected: bool) -> None:
    made = default_profile().plugin(plugin)
    assert made is not None
    assert events
    assert any(one.concerns(made.interests) and made.may_help(waiting, one, cluster()) for one in events) is expected
