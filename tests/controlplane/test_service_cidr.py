"""Ranges of Service addresses: when they are ready, and when they may go."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from kubeloop.api.networking.v1 import IPAddress, IPAddressSpec, ParentReference, ServiceCIDR, ServiceCIDRSpec
from kubeloop.controlplane.services.service_cidr import FINALIZER, ServiceCIDRController, may_end, networks, overlapping
from kubeloop.meta import NotFound, ObjectMeta
from tests.controlplane.kills import KillScenario, assert_survives_kills
from tests.controlplane.simulated import FakeTimeCluster, simulation


@pytest.mark.parametrize(
    ("ranges", "addresses", "expected"),
    [
        pytest.param({"a": ["10.1.0.0/24"]}, [], True, id="a range without addresses"),
        pytest.param({"a": ["10.1.0.0/24"]}, ["10.1.0.7"], False, id="the only range of an address"),
        pytest.param({"a": ["10.1.0.0/24"]}, ["10.2.0.7"], True, id="an address of no range"),
        pytest.param({"a": ["10.1.0.0/24"], "b": ["10.1.0.0/16"]}, ["10.1.0.7"], True, id="a larger range contains it"),
        pytest.param({"a": ["10.1.0.0/24"], "b": ["10.1.0.0/24"]}, ["10.1.0.7"], True, id="an equal range contains it"),
        pytest.param({"a": ["10.1.0.0/24"], "b": ["10.1.0.0/28"]}, ["10.1.0.7"], True, id="a smaller range has the address"),
        pytest.param({"a": ["10.1.0.0/24"], "b": ["10.1.0.0/28"]}, ["10.1.0.77"], False, id="a smaller range has not the address"),
        pytest.param({"a": ["10.1.0.0/24", "fd00::/64"], "b": ["10.1.0.0/16"]}, ["fd00::7"], False, id="one of two families is covered"),
    ],
)
def test_may_end(ranges: dict[str, list[str]], addresses: list[str], expected: bool) -> None:
    parsed = {name: networks(cidrs) for name, cidrs in ranges.items()}
    assert may_end("a", parsed, [ip_address(text) for text in addresses]) is expected


def test_overlapping_ranges_contain_or_are_contained() -> None:
    ranges = {"same": ["10.1.0.0/24"], "wide": ["10.0.0.0/8"], "part": ["10.1.0.0/28"], "other": ["10.2.0.0/24"], "six": ["fd00::/64"]}
    found = overlapping({name: networks(cidrs) for name, cidrs in ranges.items()}, networks(["10.1.0.0/24"]))
    assert found == {"same", "wide", "part"}


def service_cidr(name: str, *cidrs: str) -> ServiceCIDR:
    return ServiceCIDR(metadata=ObjectMeta(name=name), spec=ServiceCIDRSpec(cidrs=list(cidrs)))


def allocated(text: str) -> IPAddress:
    labels = {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io", "ipaddress.kubernetes.io/ip-family": "IPv4"}
    parent = ParentReference(resource="services", namespace="default", name="s")
    return IPAddress(metadata=ObjectMeta(name=text, labels=labels), spec=IPAddressSpec(parent_ref=parent))


async def condition(cluster: FakeTimeCluster, name: str) -> tuple[str, str, str]:
    (one,) = (await cluster.client.get(ServiceCIDR, name)).status.conditions
    assert one.type == "Ready"
    return one.status, one.reason, one.message


async def test_a_range_is_protected_and_ready_and_its_deletion_waits_for_its_addresses() -> None:
    async with simulation(ServiceCIDRController()) as cluster:
        await cluster.client.create(service_cidr("a", "10.77.0.0/24"))
        await cluster.client.create(allocated("10.77.0.7"))
        await cluster.pass_time(1)
        assert (await cluster.client.get(ServiceCIDR, "a")).metadata.finalizers == [FINALIZER]
        assert await condition(cluster, "a") == ("True", "", "Kubernetes Service CIDR is ready")
        await cluster.client.delete(ServiceCIDR, "a")
        await cluster.pass_time(30)
        assert await condition(cluster, "a") == (
            "False",
            "Terminating",
            "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
        )
        await cluster.client.delete(IPAddress, "10.77.0.7")
        await cluster.pass_time(1)
        with pytest.raises(NotFound):
            await cluster.client.get(ServiceCIDR, "a")


async def test_a_new_range_around_it_lets_a_range_go_after_a_grace() -> None:
    async with simulation(ServiceCIDRController()) as cluster:
        await cluster.client.create(service_cidr("a", "10.77.0.0/24"))
        await cluster.client.create(allocated("10.77.0.7"))
        await cluster.pass_time(1)
        await cluster.client.delete(ServiceCIDR, "a")
        await cluster.pass_time(1)
        await cluster.client.create(service_cidr("b", "10.77.0.0/16"))
        await cluster.pass_time(5)
        assert (await cluster.client.get(ServiceCIDR, "a")).metadata.finalizers == [FINALIZER], "API servers may still allocate from it"
        await cluster.pass_time(5)
        with pytest.raises(NotFound):
            await cluster.client.get(ServiceCIDR, "a")


async def roll(cluster: FakeTimeCluster) -> None:
    for name, cidr in (("a", "10.77.0.0/24"), ("b", "10.77.0.0/16"), ("c", "10.78.0.0/24")):
        await cluster.client.create(service_cidr(name, cidr))
    await cluster.client.create(allocated("10.78.0.7"))
    await cluster.pass_time(2)
    for name in ("a", "c"):
        await cluster.client.delete(ServiceCIDR, name)


async def test_survives_a_kill_after_any_write() -> None:
    assert await assert_survives_kills(KillScenario(lambda: [ServiceCIDRController()], roll, [ServiceCIDR]))
