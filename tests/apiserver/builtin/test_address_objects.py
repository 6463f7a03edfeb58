"""IPAddress objects of services, and their repair after a crash between two writes."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.api.core.v1 import Service, ServicePort, ServiceSpec
from kubeloop.api.networking.v1 import IPAddress, IPAddressSpec, ParentReference, ServiceCIDR, ServiceCIDRSpec
from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
from kubeloop.client import ALL_NAMESPACES
from kubeloop.meta import ObjectMeta
from kubeloop.meta.errors import InternalError, Invalid
from kubeloop.testing import HandlerServer


def service(name: str, address: str = "") -> Service:
    return Service(metadata=ObjectMeta(name=name), spec=ServiceSpec(cluster_ip=address, ports=[ServicePort(port=80)]))


def held(address: str, by: str) -> IPAddress:
    labels = {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io", "ipaddress.kubernetes.io/ip-family": "IPv4"}
    parent = ParentReference(resource="services", namespace="default", name=by)
    return IPAddress(metadata=ObjectMeta(name=address, labels=labels), spec=IPAddressSpec(parent_ref=parent))


async def test_after_a_crash_addresses_are_those_of_the_services_there_are() -> None:
    async with HandlerServer() as server:
        client = server.client()
        await client.create(service("a", "10.0.0.20"))
        await client.delete(IPAddress, "10.0.0.20")
        await client.create(held("10.0.0.21", "gone"))
        with pytest.raises(Invalid, match="provided IP is already allocated"):
            await client.create(service("b", "10.0.0.21"))
        await server.restart()
        await client.create(service("b", "10.0.0.21"))
        found = {one.metadata.name: one.spec.parent_ref.name for one in await client.list(IPAddress)}
        assert found == {"10.0.0.1": "kubernetes", "10.0.0.20": "a", "10.0.0.21": "b"}


async def test_a_tiny_range_is_given_out_once_and_again_when_services_go() -> None:
    async with HandlerServer(services=ServiceRanges.parse("10.9.0.0/29", "31000-31001")) as server:
        client = server.client()

        async def attempt(name: str) -> str:
            try:
                return (await client.create(service(name))).spec.cluster_ip or ""
            except InternalError:  # the range is full
                return ""

        for _ in range(3):
            # One is that of the service kubernetes.
            given = [one for one in await asyncio.gather(*(attempt(f"s{number}") for number in range(12))) if one]
            assert sorted(given) == [f"10.9.0.{number}" for number in range(2, 7)]
            for one in await client.list(Service, namespace=ALL_NAMESPACES):
                if one.metadata.name != "kubernetes":
                    await client.delete(Service, one.metadata.name)
        assert [one.metadata.name for one in await client.list(IPAddress)] == ["10.9.0.1"]


async def test_a_service_cidr_widens_the_range_until_it_goes() -> None:
    async with HandlerServer(services=ServiceRanges.parse("10.9.0.0/29", "31000-31001")) as server:
        client = server.client()
        with pytest.raises(Invalid, match="the provided network does not match the current range"):
            await client.create(service("a", "10.8.0.9"))
        await client.create(ServiceCIDR(metadata=ObjectMeta(name="more"), spec=ServiceCIDRSpec(cidrs=["10.8.0.0/28", "2001:db8::/120"])))
        await client.create(service("a", "10.8.0.9"))
        given = [(await client.create(service(f"s{number}"))).spec.cluster_ip or "" for number in range(6)]
        # The server's own range has six addresses, of which the service kubernetes has one.
        assert [one.rpartition(".")[0] for one in given] == [*["10.9.0"] * 5, "10.8.0"]
        await client.delete(ServiceCIDR, "more")
        with pytest.raises(InternalError, match="range is full"):
            await client.create(service("z"))
