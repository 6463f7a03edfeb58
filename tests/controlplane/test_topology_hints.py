"""Hints of endpoints: near zones and nodes, and zones in proportion to their CPU."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.core.v1 import Node, NodeCondition, NodeStatus
from kubeloop.api.discovery.v1 import Endpoint, EndpointConditions, EndpointHints, EndpointSlice, ForNode, ForZone
from kubeloop.controlplane.services.hints import (
    ZONE,
    add_proportional_hints,
    allocations,
    is_overloaded,
    is_proportional,
    set_hints,
    traffic_distribution,
    zone_ratios,
)
from kubeloop.controlplane.services.slices import SlicePlan
from kubeloop.meta import ObjectMeta, Quantity
from tests.controlplane.backends import service

Hints = tuple[list[str], list[str]] | None


def endpoint(zone: str | None = "a", *, ready: bool = True, hints: Hints = None, node: str = "n") -> Endpoint:
    made = (
        EndpointHints(for_zones=[ForZone(name=one) for one in hints[0]], for_nodes=[ForNode(name=one) for one in hints[1]])
        if hints
        else None
    )
    return Endpoint(addresses=["10.0.0.1"], conditions=EndpointConditions(ready=ready), zone=zone, node_name=node, hints=made)


def slice_of(*endpoints: Endpoint) -> EndpointSlice:
    return EndpointSlice(address_type="IPv4", endpoints=list(endpoints))


def hints_of(endpoint_slice: EndpointSlice) -> list[Hints]:
    return [
        None if each.hints is None else ([zone.name for zone in each.hints.for_zones], [node.name for node in each.hints.for_nodes])
        for each in endpoint_slice.endpoints
    ]


@pytest.mark.parametrize(
    ("present", "distribution", "expected"),
    [
        pytest.param(endpoint(), "PreferClose", (["a"], []), id="a near zone"),
        pytest.param(endpoint(), "PreferSameZone", (["a"], []), id="the same under its newer name"),
        pytest.param(endpoint(), "PreferSameNode", (["a"], ["n"]), id="a near node, and its zone"),
        pytest.param(endpoint(None), "PreferSameNode", ([], ["n"]), id="a node without a zone"),
        pytest.param(endpoint(None), "PreferClose", None, id="nothing is near without a zone"),
        pytest.param(endpoint(ready=False), "PreferClose", None, id="endpoints that are not ready get no hints"),
        pytest.param(endpoint(hints=(["a"], [])), "", None, id="without a distribution hints are removed"),
        pytest.param(endpoint(hints=(["b"], ["n"])), "PreferClose", (["a"], []), id="outdated hints are replaced"),
    ],
)
def test_hints_of_changed_slices(present: Endpoint, distribution: str, expected: Hints) -> None:
    plan = SlicePlan(create=[slice_of(present)])
    set_hints(plan, distribution)
    assert hints_of(plan.create[0]) == [expected]


@pytest.mark.parametrize(
    ("present", "distribution", "updated"),
    [
        pytest.param(endpoint(), "PreferClose", True, id="missing hints"),
        pytest.param(endpoint(hints=(["a"], [])), "PreferClose", False, id="hints that are right"),
        pytest.param(endpoint(hints=(["a"], ["n"])), "PreferClose", True, id="a hint for the node that is no longer wanted"),
        pytest.param(endpoint(ready=False), "PreferClose", False, id="an endpoint that is not ready"),
        pytest.param(endpoint(hints=(["a"], [])), "", True, id="hints without a distribution"),
        pytest.param(endpoint(), "", False, id="neither hints nor a distribution"),
    ],
)
def test_an_unchanged_slice_is_written_only_for_its_hints(present: Endpoint, distribution: str, updated: bool) -> None:
    plan = SlicePlan(unchanged=[slice_of(present)])
    set_hints(plan, distribution)
    assert (len(plan.update), len(plan.unchanged)) == ((1, 0) if updated else (0, 1))


@pytest.mark.parametrize(
    ("annotations", "distribution", "expected"),
    [
        ({}, "PreferClose", (False, "PreferClose")),
        ({}, "SomethingElse", (False, "")),
        ({"service.kubernetes.io/topology-mode": "Auto"}, "PreferClose", (True, "")),
        ({"service.kubernetes.io/topology-mode": "Auto", "service.kubernetes.io/topology-aware-hints": "Disabled"}, None, (False, "")),
        ({"service.kubernetes.io/topology-aware-hints": "auto"}, None, (True, "")),
    ],
)
def test_the_annotation_comes_before_the_distribution(
    annotations: dict[str, str], distribution: str | None, expected: tuple[bool, str]
) -> None:
    one = service(traffic_distribution=distribution)
    one.metadata.annotations = annotations
    assert (is_proportional(one), traffic_distribution(one)) == expected


def node(zone: str, cpu: str = "4", *, ready: str = "True", labels: dict[str, str] | None = None) -> Node:
    metadata = ObjectMeta(name=f"n-{zone}", labels=({ZONE: zone} if zone else {}) | (labels or {}))
    status = NodeStatus(conditions=[NodeCondition(type="Ready", status=ready)], allocatable={"cpu": Quantity(cpu)})
    return Node(metadata=metadata, status=status)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param([node("a"), node("b", "12")], {"a": 0.25, "b": 0.75}, id="zones have parts of the CPU"),
        pytest.param([node("a"), node("a")], None, id="one zone is too few"),
        pytest.param([node("a"), node("b"), node("")], None, id="a node without a zone spoils it"),
        pytest.param([node("a"), node("b"), node("c", "0")], None, id="so does one without CPU"),
        pytest.param([node("a"), node("b"), node("c", ready="False")], {"a": 0.5, "b": 0.5}, id="nodes that are not ready do not count"),
        pytest.param(
            [node("a"), node("b"), node("", labels={"node-role.kubernetes.io/control-plane": ""})], {"a": 0.5, "b": 0.5},
            id="nor do nodes of the control plane",
        ),
    ],
)  # fmt: skip
def test_zone_ratios(nodes: list[Node], expected: dict[str, float] | None) -> None:
    assert zone_ratios(nodes) == expected


@pytest.mark.parametrize(
    ("ratios", "count", "expected"),
    [
        (None, 4, "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"),
        ({"a": 0.5, "b": 0.5}, 1, "Insufficient number of endpoints (1 endpoints, 2 zones)"),
        (
            {"a": 0.4, "b": 0.4, "c": 0.2}, 4,
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (4 endpoints, 3 zones)",
        ),
        ({"a": 0.5, "b": 0.5}, 6, {"a": (3, 3, 3.0), "b": (3, 3, 3.0)}),
        ({"a": 0.25, "b": 0.75}, 8, {"a": (2, 3, 2.0), "b": (5, 6, 6.0)}),
    ],
)  # fmt: skip
def test_allocations(ratios: Any, count: int, expected: Any) -> None:
    found = allocations(ratios, count)
    assert found if isinstance(found, str) else {zone: (one.minimum, one.maximum, one.desired) for zone, one in found.items()} == expected
    if isinstance(found, str):
        assert found == expected


def test_surplus_endpoints_of_a_zone_serve_another() -> None:
    plan = SlicePlan(create=[slice_of(*(endpoint("a") for _ in range(5)), endpoint("b"))])
    change = add_proportional_hints(plan, {"a": 0.5, "b": 0.5})
    assert change.allocated == {"a": 3, "b": 3}
    assert sorted(hints[0][0] for hints in hints_of(plan.create[0]) if hints) == ["a", "a", "a", "b", "b", "b"]


def test_slices_with_good_hints_stay() -> None:
    good = slice_of(endpoint("a", hints=(["a"], [])), endpoint("b", hints=(["b"], [])))
    plan = SlicePlan(unchanged=[good])
    assert add_proportional_hints(plan, {"a": 0.5, "b": 0.5}).allocated == {"a": 1, "b": 1}
    assert plan.update == []


@pytest.mark.parametrize(
    ("present", "ratios", "problem"),
    [
        pytest.param(
            [endpoint("a"), endpoint(None)], {"a": 0.5, "b": 0.5}, "One or more endpoints do not have a zone specified", id="no zone"
        ),
        pytest.param([endpoint("a")], {"a": 0.5, "b": 0.5}, "Insufficient number of endpoints (1 endpoints, 2 zones)", id="too few"),
    ],
)
def test_hints_are_removed_when_proportions_are_impossible(present: list[Endpoint], ratios: dict[str, float], problem: str) -> None:
    present[0].hints = EndpointHints(for_zones=[ForZone(name="a")])
    plan = SlicePlan(unchanged=[slice_of(*present)])
    change = add_proportional_hints(plan, {"a": 0.5, "b": 0.5})
    assert (change.allocated, change.problem) == (None, problem)
    assert hints_of(plan.update[0]) == [None] * len(present)


@pytest.mark.parametrize(
    ("allocated", "ratios", "expected"),
    [
        ({"a": 3, "b": 3}, {"a": 0.5, "b": 0.5}, False),
        ({"a": 5, "b": 1}, {"a": 0.5, "b": 0.5}, True),
        ({"a": 6}, {"a": 0.5, "b": 0.5}, True),
        ({"a": 6}, None, True),
        ({}, None, False),
    ],
)
def test_is_overloaded(allocated: dict[str, int], ratios: dict[str, float] | None, expected: bool) -> None:
    assert is_overloaded(allocated, ratios) is expected
