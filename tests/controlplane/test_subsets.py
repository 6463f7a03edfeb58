"""Subsets of Endpoints: how addresses are packed, sorted and left out."""

from __future__ import annotations

import pytest

from kubeloop.api.core.v1 import EndpointAddress, EndpointPort, EndpointSubset, ObjectReference
from kubeloop.controlplane.services.subsets import address_count, repacked, same_subsets, truncate

HTTP = EndpointPort(name="http", port=80, protocol="TCP")


def address(ip: str, uid: str = "", node: str | None = None, **fields: str) -> EndpointAddress:
    target = ObjectReference(kind="Pod", namespace="n", name=f"p{uid}", uid=f"u{uid}") if uid else None
    return EndpointAddress(ip=ip, node_name=node, target_ref=target, **fields)


def ips(some: list[EndpointAddress]) -> list[str]:
    return [one.ip for one in some]


def test_addresses_with_the_same_ports_share_a_subset_and_subsets_are_in_upstreams_order() -> None:
    """The result is that of RepackSubsets of upstream's pkg/api/v1/endpoints for the same subsets."""
    dns, h2 = EndpointPort(name="dns", port=53, protocol="UDP"), EndpointPort(name="x", port=1, protocol="TCP", app_protocol="h2")
    found = repacked(
        [
            EndpointSubset(addresses=[address("10.0.0.2", "2", "n1"), address("10.0.0.1", "1", "")], ports=[HTTP, dns, h2]),
            EndpointSubset(not_ready_addresses=[address("10.0.0.3", hostname="h")], ports=[HTTP]),
            EndpointSubset(not_ready_addresses=[address("10.0.0.4")]),
            EndpointSubset(addresses=[address("10.0.0.5")], ports=[EndpointPort(name="a", port=81, protocol="TCP")]),
        ]
    )
    assert [(ips(one.addresses), ips(one.not_ready_addresses), [port.name for port in one.ports]) for one in found] == [
        ([], ["10.0.0.4"], []),
        (["10.0.0.5"], [], ["a"]),
        (["10.0.0.1", "10.0.0.2"], [], ["x", "dns"]),
        (["10.0.0.1", "10.0.0.2"], ["10.0.0.3"], ["http"]),
    ]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(
            EndpointSubset(addresses=[address("10.0.0.1", "1")], ports=[HTTP]),
            EndpointSubset(not_ready_addresses=[address("10.0.0.1", "1")], ports=[HTTP]),
            ([], ["10.0.0.1"]),
            id="an address that is not ready once is not ready",
        ),
        pytest.param(
            EndpointSubset(addresses=[address("10.0.0.1", "1")], ports=[HTTP]),
            EndpointSubset(addresses=[address("10.0.0.1", "2")], ports=[HTTP]),
            (["10.0.0.1", "10.0.0.1"], []),
            id="two pods on the network of a node are two addresses",
        ),
        pytest.param(
            EndpointSubset(addresses=[address("10.0.0.1")], ports=[HTTP]),
            EndpointSubset(addresses=[address("10.0.0.1")], ports=[HTTP]),
            (["10.0.0.1"], []),
            id="the same address twice is one",
        ),
    ],
)
def test_repacked(first: EndpointSubset, second: EndpointSubset, expected: tuple[list[str], list[str]]) -> None:
    (found,) = repacked([first, second])
    assert (ips(found.addresses), ips(found.not_ready_addresses)) == expected
    assert same_subsets(repacked([found]), [found])


def test_versions_of_targets_do_not_make_subsets_different() -> None:
    one, other = (EndpointSubset(addresses=[address("10.0.0.1", "1")]) for _ in range(2))
    target = other.addresses[0].target_ref
    assert target is not None
    target.resource_version = "9"
    assert same_subsets([one], [other])
    target.uid = "another"
    assert not same_subsets([one], [other])
    assert not same_subsets([one], [])


def subset(ready: int, waiting: int, at: int) -> EndpointSubset:
    return EndpointSubset(
        addresses=[address(f"10.{at}.0.{number}") for number in range(ready)],
        not_ready_addresses=[address(f"10.{at}.1.{number}") for number in range(waiting)],
    )


@pytest.mark.parametrize(
    ("sizes", "expected", "cut"),
    [
        pytest.param([(6, 4)], [(6, 4)], False, id="as many addresses as fit stay"),
        pytest.param([(8, 8)], [(8, 2)], True, id="addresses that are not ready go first"),
        pytest.param([(12, 3)], [(10, 0)], True, id="ready addresses are cut when they alone are too many"),
        pytest.param([(6, 0), (6, 5)], [(5, 0), (5, 0)], True, id="each subset gives up its share"),
        pytest.param([(7, 1), (7, 1), (7, 1)], [(4, 0), (4, 0), (2, 0)], True, id="shares are rounded up, and the last subset loses more"),
        pytest.param([(4, 2), (4, 6)], [(4, 1), (4, 1)], True, id="shares of addresses that are not ready are rounded up, too"),
    ],
)
def test_truncate(sizes: list[tuple[int, int]], expected: list[tuple[int, int]], cut: bool) -> None:
    found, truncated = truncate([subset(*size, at) for at, size in enumerate(sizes)], 10)
    assert [(len(one.addresses), len(one.not_ready_addresses)) for one in found] == expected
    assert truncated is cut
    assert address_count(found) == 10
