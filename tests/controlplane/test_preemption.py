"""Preemption: which node, and which of its pods must go. The facts of upstream's unit tests."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controlplane.scheduling.cluster_facts import Budget, ClusterFacts
from kubeloop.controlplane.scheduling.configuration import default_profile
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts
from kubeloop.controlplane.scheduling.framework import find_nodes
from kubeloop.controlplane.scheduling.preemption import PreemptionResult, divide_by_budget, preempt
from kubeloop.meta import selector_from
from kubeloop.types import JSONObject
from tests.controlplane.scheduling import WEB, cluster, near, node, pod, spread


def started(day: int) -> JSONObject:
    return {"startTime": f"2026-01-{day:02}T00:00:00Z"}


def low(name: str, cpu: str = "2", priority: int = 0, **fields: Any) -> PodFacts:
    return pod(name, cpu=cpu, priority=priority, **fields)


def high(cpu: str = "3", **fields: Any) -> PodFacts:
    return pod("high", cpu=cpu, priority=100, **fields)


def preempted(facts: ClusterFacts, pending: PodFacts) -> PreemptionResult:
    profile = default_profile()
    return preempt(profile, pending, facts, find_nodes(profile, pending, facts))


APP_BUDGET = {("shop", "b"): Budget("shop", selector_from({"matchLabels": WEB}), 0)}


@pytest.mark.parametrize(
    ("pending", "nodes", "expected"),
    [
        pytest.param(high(), [node("a", low("x"))], ("a", ["x"]), id="a pod of lower priority"),
        pytest.param(high("1"), [node("a", low("x"), low("y"))], ("a", ["y"]), id="no more pods than necessary"),
        pytest.param(
            high("2"), [node("a", low("x", priority=5), low("y"))], ("a", ["y"]), id="the pod of the lowest priority goes, others stay"
        ),
        pytest.param(
            high("2"),
            [node("a", low("x", status=started(1)), low("y", status=started(2)))],
            ("a", ["y"]),
            id="among equal pods that which started last goes",
        ),
        pytest.param(
            high(),
            [node("a", low("x", priority=9)), node("b", low("y", priority=8))],
            ("b", ["y"]),
            id="the node with the lower highest priority",
        ),
        pytest.param(
            high("4"),
            [node("a", low("x"), low("y")), node("b", low("z", "4"))],
            ("b", ["z"]),
            id="the node with the smaller sum of priorities: fewer pods",
        ),
        pytest.param(
            high(),
            [node("a", low("x", status=started(1))), node("b", low("y", status=started(2)))],
            ("b", ["y"]),
            id="the node whose victim started last",
        ),
        pytest.param(
            high("1", affinity=near("podAntiAffinity")),
            [node("a", low("x", "1", labels=WEB))],
            ("a", ["x"]),
            id="a pod that anti-affinity excludes",
        ),
        pytest.param(
            high("1", labels=WEB),
            [node("a", low("x", "1", affinity=near("podAntiAffinity")))],
            ("a", ["x"]),
            id="a pod whose anti-affinity excludes this one",
        ),
        pytest.param(
            high("1", labels=WEB, topologySpreadConstraints=spread()),
            [node("a", low("x", labels=WEB), zone="1"), node("b", zone="2", room={"cpu": 0})],
            ("a", ["x"]),
            id="a pod that makes the spread uneven",
        ),
        pytest.param(high("5"), [node("a", low("x"))], None, id="no victim helps on a node that is too small"),
        pytest.param(high(), [node("a", low("x", priority=100))], None, id="pods of the same priority stay"),
        pytest.param(high(preemptionPolicy="Never"), [node("a", low("x"))], None, id="a pod that never preempts"),
        pytest.param(
            high(nodeSelector={"disk": "ssd"}), [node("a", low("x"))], None, id="no pod goes from a node that affinity excludes anyway"
        ),
    ],
)
def test_victims(pending: PodFacts, nodes: list[NodeFacts], expected: tuple[str, list[str]] | None) -> None:
    facts = cluster(*nodes)
    before = {one.name: sorted(each.name for each in one.pods) for one in nodes}
    candidate = preempted(facts, pending).candidate
    assert (candidate and (candidate.node, [one.name for one in candidate.victims])) == expected
    assert {one.name: sorted(each.name for each in one.pods) for one in nodes} == before


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(
            [node("a", low("x", labels=WEB)), node("b", low("y", priority=50))], ("b", 0), id="a node without violations comes first"
        ),
        pytest.param([node("a", low("x", labels=WEB))], ("a", 1), id="a budget is violated if nothing else helps"),
        pytest.param(
            [node("a", low("x", "3", priority=50), low("y", "1", labels=WEB))], ("a", 0), id="a pod whose budget is exhausted is spared"
        ),
    ],
)
def test_budgets(nodes: list[NodeFacts], expected: tuple[str, int]) -> None:
    candidate = preempted(cluster(*nodes, budgets=APP_BUDGET), high()).candidate
    assert candidate is not None
    assert (candidate.node, candidate.violations) == expected


def test_a_budget_allows_as_many_disruptions_as_it_says_and_counts_pods_in_disruption_once() -> None:
    pods = [low(name, labels=WEB) for name in "abc"]
    budget = Budget("shop", selector_from({"matchLabels": WEB}), 1, frozenset({"a"}))
    violating, others = divide_by_budget(pods, [budget])
    assert ([one.name for one in violating], [one.name for one in others]) == (["c"], ["a", "b"])


@pytest.mark.parametrize(
    ("pending", "nodes", "expected"),
    [
        pytest.param(
            high("5"),
            [node("a", low("x")), node("b", closed=True)],
            "no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
            id="preemption does not help",
        ),
        pytest.param(
            high(),
            [node("a", low("x", priority=100)), node("b", closed=True)],
            "no new claims to deallocate, preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
            "1 Preemption is not helpful for scheduling.",
            id="there are no victims",
        ),
        pytest.param(
            high(preemptionPolicy="Never"),
            [node("a")],
            "no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.",
            id="it never preempts",
        ),
    ],
)
def test_messages(pending: PodFacts, nodes: list[NodeFacts], expected: str) -> None:
    facts = cluster(*nodes)
    for one in [*facts.nodes][:1]:
        facts.add_pod(pod("full", cpu="4", priority=1000), one.name)
    assert preempted(facts, pending).message == expected


def test_a_pod_waits_for_the_victims_of_its_first_preemption() -> None:
    gone = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}
    facts = cluster(node("a", low("x", "4", terminating=True, status=gone)), node("b", low("y", "4")))
    result = preempted(facts, high(status={"nominatedNodeName": "a"}))
    assert (result.candidate, result.keeps_nomination) == (None, True)
    assert result.message == "no new claims to deallocate, preemption: not eligible due to a terminating pod on the nominated node."


def test_a_nominated_pod_has_its_room_on_the_node() -> None:
    facts = cluster(node("a"))
    facts.nominate(high("3"), "a")
    profile = default_profile()
    assert not find_nodes(profile, low("x", "2"), facts).fitting
    assert find_nodes(profile, low("x", "2", priority=1000), facts).fitting
    assert find_nodes(profile, high("3"), facts).fitting
