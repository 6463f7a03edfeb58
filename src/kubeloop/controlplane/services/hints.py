"""Topology hints of endpoints: the same zone or node with ``trafficDistribution``, or zones in proportion to CPU with ``topology-mode``.

Pure functions, which change the endpoints of a ``SlicePlan``.
Source: k8s.io/endpointslice (trafficdist/trafficdist.go, topologycache).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kubeloop.api.core.v1 import Node, Service
from kubeloop.api.discovery.v1 import Endpoint, EndpointHints, EndpointSlice, ForNode, ForZone
from kubeloop.controlplane.services.slices import SlicePlan

ZONE = "topology.kubernetes.io/zone"
_MODE, _OLD_MODE = "service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints"
_SAME_NODE = "PreferSameNode"
_DISTRIBUTIONS = frozenset({"PreferClose", "PreferSameZone", _SAME_NODE})
_CONTROL_PLANE = frozenset({"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"})
#: Maximum fraction by which the endpoints of a zone may be overloaded.
_OVERLOAD = 0.2

ENABLED, DISABLED = "TopologyAwareHintsEnabled", "TopologyAwareHintsDisabled"
_NO_ZONE = "One or more endpoints do not have a zone specified"
_NO_HINTS = "No hints allocated for zones"
_INSUFFICIENT_NODES = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
_INSUFFICIENT_ENDPOINTS = "Insufficient number of endpoints"
_OVERLOADED = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold"


def is_proportional(service: Service) -> bool:
    """Return whether the annotation ``topology-mode``, or its older name, of a Service has the value ``Auto``."""
    annotations = service.metadata.annotations
    return annotations.get(_OLD_MODE, annotations.get(_MODE)) in ("Auto", "auto")


def traffic_distribution(service: Service) -> str:
    """Return the traffic distribution of a Service; empty if it has none, an unknown one, or proportional hints."""
    wanted = service.spec.traffic_distribution or ""
    return wanted if wanted in _DISTRIBUTIONS and not is_proportional(service) else ""


def set_hints(plan: SlicePlan, distribution: str) -> None:
    """Set the hints of ready endpoints in a plan according to a traffic distribution, or remove all hints if it is empty."""
    outdated = [one for one in plan.unchanged if _is_outdated(one, distribution)]
    plan.unchanged = [one for one in plan.unchanged if one not in outdated]
    plan.update += outdated
    for one in (*plan.create, *plan.update):
        for endpoint in one.endpoints:
            if not distribution:
                endpoint.hints = None
            elif is_ready_endpoint(endpoint):
                endpoint.hints = _near_hints(endpoint, distribution)


def _is_outdated(endpoint_slice: EndpointSlice, distribution: str) -> bool:
    if not distribution:
        return any(endpoint.hints is not None for endpoint in endpoint_slice.endpoints)
    return any(
        _contents(endpoint.hints) != _contents(_near_hints(endpoint, distribution))
        for endpoint in endpoint_slice.endpoints
        if is_ready_endpoint(endpoint)
    )


def _near_hints(endpoint: Endpoint, distribution: str) -> EndpointHints | None:
    zones = [ForZone(name=endpoint.zone)] if endpoint.zone is not None else []
    nodes = [ForNode(name=endpoint.node_name)] if endpoint.node_name is not None and distribution == _SAME_NODE else []
    return EndpointHints(for_zones=zones, for_nodes=nodes) if zones or nodes else None


def _contents(hints: EndpointHints | None) -> tuple[list[str], list[str]]:
    if hints is None:
        return [], []
    return [one.name for one in hints.for_zones], [one.name for one in hints.for_nodes]


def is_ready_endpoint(endpoint: Endpoint) -> bool:
    """Return whether the condition ready of an endpoint is true."""
    return endpoint.conditions.ready is True


# Proportional zones: each zone gets endpoints in proportion to the CPU of its nodes.


@dataclass(frozen=True, slots=True)
class HintChange:
    """The result of ``add_proportional_hints``.

    ``allocated`` has the number of hints by zone; it is None if hints are not possible, and then ``problem`` gives the reason.
    """

    allocated: dict[str, int] | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The minimum, maximum and ideal numbers of endpoints of a zone."""

    minimum: int
    maximum: int
    desired: float


def zone_ratios(nodes: Iterable[Node]) -> dict[str, float] | None:
    """Return the fraction of CPU of each zone, from ready nodes outside the control plane.

    Return None if there are fewer than two zones, or if one of these nodes has no zone or no CPU.
    """
    cpu: Counter[str] = Counter()
    for node in nodes:
        ready = next((one.status == "True" for one in node.status.conditions if one.type == "Ready"), False)
        if not ready or _CONTROL_PLANE & node.metadata.labels.keys():
            continue
        quantity = node.status.allocatable.get("cpu")
        zone = node.metadata.labels.get(ZONE)
        amount = 0 if quantity is None else quantity.milli_value()
        if not zone or not amount:
            return None
        cpu[zone] += amount
    total = sum(cpu.values())
    return {zone: amount / total for zone, amount in sorted(cpu.items())} if total and len(cpu) > 1 else None


def allocations(ratios: Mapping[str, float] | None, endpoints: int) -> dict[str, Allocation] | str:
    """Return the allocation of a number of endpoints to each zone, or a message about why no allocation avoids an overload."""
    if ratios is None:
        return _INSUFFICIENT_NODES
    numbers = f"({endpoints} endpoints, {len(ratios)} zones)"
    if len(ratios) > endpoints:
        return f"{_INSUFFICIENT_ENDPOINTS} {numbers}"
    minimums = {zone: math.ceil(ratio * endpoints * (1 / (1 + _OVERLOAD))) for zone, ratio in ratios.items()}
    spare = endpoints - sum(minimums.values())
    if spare < 0:
        return f"{_OVERLOADED} {numbers}"
    return {zone: Allocation(least, least + spare, max(ratios[zone] * endpoints, least)) for zone, least in minimums.items()}


def add_proportional_hints(plan: SlicePlan, ratios: Mapping[str, float] | None) -> HintChange:
    """Set the hints of a plan in proportion to the CPU of the zones; if that is impossible, remove all hints."""
    slices = (*plan.create, *plan.update, *plan.unchanged)
    zones = allocations(ratios, sum(is_ready_endpoint(endpoint) for one in slices for endpoint in one.endpoints))
    if isinstance(zones, str):
        return _without_hints(plan, zones)
    allocated: Counter[str] = Counter()
    unchanged = []
    for one in plan.unchanged:
        present = _present_hints(one, allocated, zones)
        if present is None:
            plan.update.append(one)
        else:
            unchanged.append(one)
            allocated.update(present)
    plan.unchanged = unchanged
    changing = [endpoint for one in (*plan.create, *plan.update) for endpoint in one.endpoints if is_ready_endpoint(endpoint)]
    for endpoint in changing:
        if not endpoint.zone:
            return _without_hints(plan, _NO_ZONE)
        allocated[endpoint.zone] += 1
        endpoint.hints = EndpointHints(for_zones=[ForZone(name=endpoint.zone)])
    giving, receiving = _transfers(zones, allocated)
    for endpoint in changing:
        zone = endpoint.zone or ""
        target = next((name for name, count in receiving.items() if count), None)
        if target is None or not giving.get(zone):
            continue
        endpoint.hints = EndpointHints(for_zones=[ForZone(name=target)])
        for counts, name, change in ((giving, zone, -1), (receiving, target, -1), (allocated, target, 1), (allocated, zone, -1)):
            counts[name] += change
    return HintChange(dict(allocated)) if allocated else _without_hints(plan, _NO_HINTS)


def is_overloaded(allocated: Mapping[str, int], ratios: Mapping[str, float] | None) -> bool:
    """Return whether a zone has too few allocated endpoints for its CPU, or the ratios of the zones are unknown."""
    if not allocated or not ratios:
        return bool(allocated)
    total = sum(allocated.values())
    return any(allocated.get(zone, 0) < math.ceil(total * ratio * (1 / (1 + _OVERLOAD))) for zone, ratio in ratios.items())


def _without_hints(plan: SlicePlan, problem: str) -> HintChange:
    set_hints(plan, "")
    return HintChange(None, problem)


def _present_hints(endpoint_slice: EndpointSlice, allocated: Mapping[str, int], zones: Mapping[str, Allocation]) -> Counter[str] | None:
    """Return the numbers of hints of a slice by zone, or None if its hints must change."""
    present: Counter[str] = Counter()
    for endpoint in endpoint_slice.endpoints:
        if not is_ready_endpoint(endpoint):
            continue
        names, _ = _contents(endpoint.hints)
        if not names or any(name not in zones for name in names):
            return None
        present.update(names)
    if any(count + allocated.get(zone, 0) > zones[zone].maximum for zone, count in present.items()):
        return None
    return present


def _transfers(zones: Mapping[str, Allocation], allocated: Mapping[str, int]) -> tuple[Counter[str], Counter[str]]:
    """Return how many endpoints each zone gives to other zones, and how many each zone receives."""
    surplus = {zone: allocated.get(zone, 0) - one.desired for zone, one in zones.items()}
    gives = {zone: amount for zone, amount in surplus.items() if amount > 0}
    needs = {zone: -amount for zone, amount in surplus.items() if amount < 0}
    giving: Counter[str] = Counter()
    receiving: Counter[str] = Counter()
    while gives and needs:
        giver, receiver = max(gives, key=gives.__getitem__), max(needs, key=needs.__getitem__)
        if min(gives[giver], needs[receiver]) < 0.5 or max(gives[giver], needs[receiver]) < 1.0:
            break
        giving[giver] += 1
        receiving[receiver] += 1
        gives[giver] -= 1
        needs[receiver] -= 1
    return giving, receiving
