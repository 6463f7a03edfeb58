"""Scores of nodes by each plugin: the facts of upstream's unit tests."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controlplane.scheduling.configuration import configuration_from, default_profile
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts
from kubeloop.controlplane.scheduling.framework import SchedulerPlugin, best_node, enough_nodes, find_nodes, normalised, score_nodes
from kubeloop.controlplane.scheduling.interpod_affinity import InterPodAffinity
from kubeloop.controlplane.scheduling.node_plugins import ImageLocality, NodeAffinity, TaintToleration
from kubeloop.controlplane.scheduling.resource_plugins import (
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    ResourceWeight,
    capacity_ratio,
    most_allocated,
)
from kubeloop.controlplane.scheduling.topology_spread import PodTopologySpread
from kubeloop.meta import selector_from
from kubeloop.types import JSONObject
from tests.controlplane.scheduling import HOSTNAME, WEB, ZONE, cluster, near, node, pod, spread


def soft(key: str) -> JSONObject:
    return {"key": key, "value": "a", "effect": "PreferNoSchedule"}


def preferred(weight: int, key: str, value: str) -> JSONObject:
    expression = {"key": key, "operator": "In", "values": [value]}
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


def liking(*terms: JSONObject) -> JSONObject:
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": list(terms)}}


MIB = 1 << 20
GIB = 1 << 30
GPU = "example.com/gpu"
CPU_AND_MEMORY = (ResourceWeight("cpu"), ResourceWeight("memory"))
RATIO = NodeResourcesFit(CPU_AND_MEMORY, capacity_ratio([(0, 10), (100, 0)]), rounded=True)
OTHER = pod("other", labels={"app": "db"}, affinity=near("podAffinity", 10))
HARD = pod("hard", labels={"app": "db"}, affinity=near("podAffinity"))


@pytest.mark.parametrize(
    ("plugin", "pending", "nodes", "expected"),
    [
        pytest.param(
            TaintToleration(),
            pod(tolerations=[{"key": "a", "operator": "Exists", "effect": "PreferNoSchedule"}]),
            [node("a", taints=[soft("a")]), node("b", taints=[soft("b")])],
            [100, 0],
            id="a tolerated taint costs nothing",
        ),
        pytest.param(
            TaintToleration(),
            pod(),
            [node("a"), node("b", taints=[soft("a")]), node("c", taints=[soft("a"), soft("b")])],
            [100, 50, 0],
            id="each taint that is not tolerated costs",
        ),
        pytest.param(
            TaintToleration(),
            pod(tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]),
            [node("a"), node("b", taints=[soft("a")])],
            [100, 0],
            id="a toleration of another effect does not count",
        ),
        pytest.param(TaintToleration(), pod(), [node("a"), node("b")], [100, 100], id="nodes without taints are equal"),
        pytest.param(NodeAffinity(), pod(), [node("a")], None, id="a pod without preferences does not distinguish nodes"),
        pytest.param(
            NodeAffinity(),
            pod(affinity=liking(preferred(2, "disk", "ssd"), preferred(3, "gpu", "yes"))),
            [node("a", disk="ssd"), node("b", disk="ssd", gpu="yes"), node("c")],
            [40, 100, 0],
            id="the weights of the preferences that a node meets are added",
        ),
        pytest.param(
            NodeAffinity({"preferredDuringSchedulingIgnoredDuringExecution": [preferred(1, "disk", "ssd")]}),
            pod(),
            [node("a", disk="ssd"), node("b")],
            [100, 0],
            id="preferences of the profile count for every pod",
        ),
        pytest.param(
            NodeResourcesFit(),
            pod(cpu="3", memory="5Gi"),
            [node("a"), node("b", room={"cpu": 6000})],
            [37, 50],
            id="the free share counts: (4-3)/4 and half of the memory",
        ),
        pytest.param(
            NodeResourcesFit(), pod(), [node("a"), node("b", pod("q", cpu="2"))], [97, 71], id="a pod that requests nothing counts a little"
        ),
        pytest.param(
            NodeResourcesFit(CPU_AND_MEMORY, most_allocated),
            pod(cpu="3", memory="5Gi"),
            [node("a"), node("b", room={"cpu": 6000})],
            [62, 50],
            id="MostAllocated prefers full nodes",
        ),
        pytest.param(
            RATIO,
            pod(cpu="1", memory="5Gi"),
            [node("a"), node("b", pod("q", cpu="3"))],
            [63, 49],
            id="a ratio: less is better, and a full resource is left out",
        ),
        pytest.param(
            NodeResourcesFit((ResourceWeight(GPU, 3), ResourceWeight("cpu"))),
            pod(cpu="1", containers=[{"name": "c", "resources": {"requests": {GPU: "1", "cpu": "1"}}}]),
            [node("a", room={GPU: 4}), node("b", room={GPU: 2})],
            [75, 56],
            id="extended resources count with their weight",
        ),
        pytest.param(
            NodeResourcesBalancedAllocation(),
            pod(cpu="3", memory="5Gi"),
            [node("a"), node("b", room={"cpu": 6000, "memory": 10 * GIB})],
            [68, 75],
            id="balance: shares that become unequal cost",
        ),
        pytest.param(NodeResourcesBalancedAllocation(), pod(), [node("a")], None, id="a pod without requests changes no balance"),
        pytest.param(
            NodeResourcesBalancedAllocation(),
            pod(cpu="2"),
            [node("a", pod("q", memory="5Gi")), node("b")],
            [87, 62],
            id="balance: a pod that fills the emptier resource is welcome",
        ),
        pytest.param(
            ImageLocality(),
            pod(image="big"),
            [node("a", images={"big:latest": 500 * MIB}), node("b")],
            [23, 0],
            id="an image that half of the nodes have counts half",
        ),
        pytest.param(ImageLocality(), pod(image="big"), [node("a", images={"big:1": 500 * MIB})], None, id="another tag is another image"),
        pytest.param(
            ImageLocality(),
            pod(image="registry:5000/big"),
            [node("a", images={"registry:5000/big:latest": 2000 * MIB})],
            [100],
            id="a registry's port is no tag, and more than a thousand MiB count no more",
        ),
        pytest.param(
            InterPodAffinity(),
            pod(affinity=near("podAffinity", 5)),
            [node("a", pod("q", labels=WEB)), node("b")],
            [100, 0],
            id="preferred affinity",
        ),
        pytest.param(
            InterPodAffinity(),
            pod(affinity=near("podAntiAffinity", 5, ZONE)),
            [node("a", pod("q", labels=WEB), zone="1"), node("b", zone="1"), node("c", zone="2")],
            [0, 0, 100],
            id="preferred anti-affinity counts for all nodes of the zone",
        ),
        pytest.param(
            InterPodAffinity(), pod(labels=WEB), [node("a", OTHER), node("b")], [100, 0], id="a running pod likes to be near this one"
        ),
        pytest.param(
            InterPodAffinity(), pod(labels=WEB), [node("a", HARD), node("b")], [100, 0], id="required affinity of a running pod counts too"
        ),
        pytest.param(InterPodAffinity(0), pod(labels=WEB), [node("a", HARD), node("b")], None, id="unless its weight is 0"),
        pytest.param(
            InterPodAffinity(ignores_preferences=True),
            pod(labels=WEB),
            [node("a", OTHER), node("b")],
            None,
            id="preferences of running pods can be ignored",
        ),
        pytest.param(
            InterPodAffinity(),
            pod(affinity=near("podAffinity", 5)),
            [node("a", pod("q", labels=WEB, namespace="other")), node("b")],
            None,
            id="pods of other namespaces do not count",
        ),
        pytest.param(
            PodTopologySpread(),
            pod(labels=WEB, topologySpreadConstraints=spread(HOSTNAME, hard=False)),
            [node("a"), node("b", *(pod(name, labels=WEB) for name in "xy")), node("c", pod("z", labels=WEB))],
            [100, 0, 33],
            id="spread over hosts: nodes with few pods are better",
        ),
        pytest.param(
            PodTopologySpread(),
            pod(labels=WEB, topologySpreadConstraints=spread(hard=False)),
            [node("a", pod("x", labels=WEB), zone="1"), node("b", zone="1"), node("c", zone="2"), node("d")],
            [0, 0, 100, 0],
            id="spread over zones: a node without the label gets nothing",
        ),
        pytest.param(
            PodTopologySpread(),
            pod(labels=WEB, topologySpreadConstraints=spread(hard=False)),
            [node("a", pod("x", labels=WEB, terminating=True), zone="1"), node("c", zone="2")],
            [100, 100],
            id="pods that end do not count",
        ),
        pytest.param(PodTopologySpread(), pod(labels=WEB), [node("a")], None, id="a pod of no Service and no controller is not spread"),
    ],
)
def test_score(plugin: SchedulerPlugin, pending: PodFacts, nodes: list[NodeFacts], expected: list[int] | None) -> None:
    assert plugin.score(pending, cluster(*nodes), nodes) == expected


@pytest.mark.parametrize(
    ("pending", "fields"),
    [
        pytest.param(pod(labels=WEB), {"services": {"shop": {"web": WEB}}}, id="of the same Service"),
        pytest.param(
            pod(labels=WEB, owner=("ReplicaSet", "web")),
            {"owner_selectors": {("ReplicaSet", "shop", "web"): selector_from({"matchLabels": WEB})}},
            id="of the same ReplicaSet",
        ),
    ],
)
def test_pods_without_constraints_are_spread_when_they_belong_together(pending: PodFacts, fields: dict[str, Any]) -> None:
    nodes = [node("a", *(pod(name, labels=WEB) for name in "xy")), node("b")]
    scores = PodTopologySpread().score(pending, cluster(*nodes, **fields), nodes)
    assert scores is not None
    assert scores[0] < scores[1]


@pytest.mark.parametrize(
    ("scores", "reverse", "expected"),
    [
        ([1, 2, 3], False, [33, 66, 100]),
        ([1, 2, 3], True, [67, 34, 0]),
        ([0, 0], False, [0, 0]),
        ([0, 0], True, [100, 100]),
    ],
)
def test_normalised(scores: list[int], reverse: bool, expected: list[int]) -> None:
    assert normalised(scores, reverse=reverse) == expected


@pytest.mark.parametrize(
    ("total", "percentage", "expected"),
    [(10, 0, 10), (99, 30, 99), (1000, 0, 420), (6000, 0, 300), (10_000, 0, 500), (200, 20, 100), (1000, 40, 400)],
)
def test_a_part_of_many_nodes_is_enough(total: int, percentage: int, expected: int) -> None:
    assert enough_nodes(total, percentage) == expected


def test_the_search_continues_where_the_last_one_ended() -> None:
    nodes = cluster(*(node(f"n{number}") for number in range(5)))
    first = find_nodes(default_profile(), pod(), nodes, limit=2)
    second = find_nodes(default_profile(), pod(), nodes, first=first.evaluated, limit=2)
    assert [one.name for one in (*first.fitting, *second.fitting)] == ["n0", "n1", "n2", "n3"]


def test_nodes_of_different_zones_alternate() -> None:
    nodes = cluster(node("a", zone="1"), node("b", zone="1"), node("c", zone="2"), node("d"))
    assert [one.name for one in nodes.nodes] == ["a", "c", "d", "b"]


def test_weights_of_a_profile_multiply_scores() -> None:
    weighted = {
        "schedulerName": "s",
        "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 7}]}},
    }
    profile = configuration_from(
        {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [weighted]}
    ).profiles["s"]
    nodes = [node("a")]
    assert score_nodes(profile, pod(cpu="3", memory="5Gi"), cluster(*nodes), nodes) == {"NodeResourcesFit": [7 * 37]}


def test_among_equal_nodes_the_one_with_the_fewest_pods_wins_and_then_the_first_by_name() -> None:
    nodes = [node("c"), node("b"), node("a", pod("q"))]
    facts = cluster(*nodes)
    for one in nodes:
        one.scored_cpu = one.scored_memory = 0
    assert best_node(default_profile(), pod(), facts, nodes).name == "b"
