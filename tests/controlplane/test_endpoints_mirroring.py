"""Mirrored Endpoints: the desired slices, and their plan."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.core.v1 import EndpointAddress, EndpointPort, Endpoints, EndpointSubset
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.controlplane.services.mirroring import is_mirrored, mirrored, plan_mirror
from kubeloop.controlplane.services.slices import SlicePlan
from kubeloop.meta import ObjectMeta

LIMIT = 3
HTTP, DNS = EndpointPort(name="http", port=80, protocol="TCP"), EndpointPort(name="dns", port=53, protocol="UDP")


def subset(*ips: str, waiting: tuple[str, ...] = (), ports: list[EndpointPort] | None = None) -> EndpointSubset:
    ready, others = ([EndpointAddress(ip=ip) for ip in some] for some in (ips, waiting))
    return EndpointSubset(addresses=ready, not_ready_addresses=others, ports=[HTTP] if ports is None else ports)


def endpoints(*subsets: EndpointSubset, **metadata: Any) -> Endpoints:
    return Endpoints(metadata=ObjectMeta(name="e", namespace="default", **({"uid": "e1"} | metadata)), subsets=list(subsets))


def plan(endpoints: Endpoints, existing: list[EndpointSlice]) -> SlicePlan:
    return plan_mirror(endpoints, mirrored(endpoints, LIMIT), existing, LIMIT)


def stored(endpoints: Endpoints) -> list[EndpointSlice]:
    """The slices of Endpoints as the cache has them."""
    made = plan(endpoints, []).create
    for number, each in enumerate(made):
        each.metadata.name, each.metadata.uid = f"e-{number}", f"uid-{number}"
    return made


def shown(some: list[EndpointSlice]) -> list[tuple[str, list[str], list[str | None]]]:
    return sorted((one.address_type, [each.addresses[0] for each in one.endpoints], [port.name for port in one.ports]) for one in some)


@pytest.mark.parametrize(
    ("subsets", "expected"),
    [
        pytest.param([], [], id="Endpoints without subsets have no slices"),
        pytest.param([subset("10.0.0.1", waiting=("10.0.0.2",))], [("IPv4", ["10.0.0.1", "10.0.0.2"], ["http"])], id="one subset"),
        pytest.param([subset("10.0.0.1", "fd00::1")], [("IPv4", ["10.0.0.1"], ["http"]), ("IPv6", ["fd00::1"], ["http"])], id="families"),
        pytest.param(
            [subset("10.0.0.1"), subset("10.0.0.2", ports=[DNS])], [("IPv4", ["10.0.0.1"], ["http"]), ("IPv4", ["10.0.0.2"], ["dns"])],
            id="a slice for each set of ports",
        ),
        pytest.param([subset("10.0.0.1"), subset("10.0.0.2")], [("IPv4", ["10.0.0.1", "10.0.0.2"], ["http"])], id="equal ports"),
        pytest.param([subset("10.0.0.1", ports=[])], [("IPv4", ["10.0.0.1"], [])], id="a subset without ports"),
        pytest.param([subset(*(f"10.0.0.{at}" for at in range(1, 6)))], [("IPv4", ["10.0.0.1", "10.0.0.2", "10.0.0.3"], ["http"])], id="3"),
    ],
)  # fmt: skip
def test_slices_of_endpoints(subsets: list[EndpointSubset], expected: list[Any]) -> None:
    assert shown(plan(endpoints(*subsets), []).create) == expected


@pytest.mark.parametrize(
    ("addresses", "invalid", "skipped"),
    [
        (("10.0.0.1",), 0, 0),
        (("10.0.0.1", "nonsense"), 1, 1),
        (("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"), 0, 2),
    ],
)
def test_addresses_that_are_left_out_are_counted(addresses: tuple[str, ...], invalid: int, skipped: int) -> None:
    found = mirrored(endpoints(subset(*addresses)), LIMIT)
    assert (found.invalid, found.skipped) == (invalid, skipped)


def test_ready_is_the_only_condition() -> None:
    (one,) = plan(endpoints(subset("10.0.0.1", waiting=("10.0.0.2",))), []).create
    assert [each.conditions.to_dict() for each in one.endpoints] == [{"ready": True}, {"ready": False}]


def test_labels_and_annotations_are_copied_but_for_those_of_the_write() -> None:
    annotations = {
        "a": "b",
        "endpoints.kubernetes.io/last-change-trigger-time": "t",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    (one,) = plan(endpoints(subset("10.0.0.1"), labels={"team": "shop"}, annotations=annotations), []).create
    assert one.metadata.annotations == {"a": "b"}
    assert one.metadata.labels == {
        "team": "shop",
        "kubernetes.io/service-name": "e",
        "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
    }


BEFORE = endpoints(subset("10.0.0.1"), labels={"team": "shop"}, annotations={"a": "b"})


@pytest.mark.parametrize(
    ("after", "changes"),
    [
        pytest.param(BEFORE, (0, 0, 0), id="equal Endpoints change nothing"),
        pytest.param(endpoints(subset("10.0.0.2"), labels={"team": "shop"}, annotations={"a": "b"}), (0, 1, 0), id="another address"),
        pytest.param(endpoints(subset("10.0.0.1"), annotations={"a": "b"}), (0, 1, 0), id="other labels"),
        pytest.param(endpoints(subset("10.0.0.1"), labels={"team": "shop"}), (0, 1, 0), id="other annotations"),
        pytest.param(
            endpoints(subset("10.0.0.1"), labels={"team": "shop"}, annotations={"a": "b"}, uid="e2"), (0, 1, 0),
            id="Endpoints that were deleted and created again",
        ),
        pytest.param(
            endpoints(subset("10.0.0.1", ports=[DNS]), labels={"team": "shop"}, annotations={"a": "b"}), (0, 1, 0),
            id="other ports recycle the slice",
        ),
        pytest.param(endpoints(subset("fd00::1")), (1, 0, 1), id="another family cannot recycle it"),
        pytest.param(endpoints(), (0, 0, 1), id="no subsets delete it"),
    ],
)  # fmt: skip
def test_changes(after: Endpoints, changes: tuple[int, int, int]) -> None:
    made = plan(after, stored(BEFORE))
    assert (len(made.create), len(made.update), len(made.delete)) == changes
    assert [one.metadata.name for one in made.update] == ["e-0"] * changes[1]


def test_superfluous_slices_of_the_same_ports_are_deleted() -> None:
    first, second = stored(BEFORE)[0], stored(BEFORE)[0]
    second.metadata.name = "e-9"
    made = plan(BEFORE, [first, second])
    assert ([one.metadata.name for one in made.delete], made.update) == (["e-9"], [])


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, True),
        ({"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}, False),
        ({"labels": {"endpointslice.kubernetes.io/skip-mirror": "false"}}, True),
        ({"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}}, False),
    ],
)
def test_which_endpoints_are_mirrored(metadata: dict[str, Any], expected: bool) -> None:
    assert is_mirrored(endpoints(**metadata)) is expected
