"""The flags for ranges of cluster IPs and node ports, and their effect."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from kubeloop.api.core.v1 import Service, ServicePort, ServiceSpec
from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
from kubeloop.client import Client
from kubeloop.meta import ConfigError, Invalid, ObjectMeta
from kubeloop.testing import TlsTestServer
from kubeloop.transport import Transport

DEFAULT = ServiceRanges()


@pytest.mark.parametrize(
    ("addresses", "ports", "expected"),
    [
        pytest.param("", "", DEFAULT, id="nothing is kube-apiserver's default"),
        pytest.param("10.96.0.0/12", "", ServiceRanges(IPv4Network("10.96.0.0/12")), id="a larger range"),
        pytest.param("10.96.0.7/24", "", ServiceRanges(IPv4Network("10.96.0.0/24")), id="an address within a range means the range"),
        pytest.param("", "80-32767", ServiceRanges(node_ports=range(80, 32768)), id="first and last port"),
        pytest.param("", "30000+10", ServiceRanges(node_ports=range(30000, 30011)), id="first port and how many more"),
        pytest.param("", "31000", ServiceRanges(node_ports=range(31000, 31001)), id="one port"),
    ],
)
def test_ranges_of_flags(addresses: str, ports: str, expected: ServiceRanges) -> None:
    assert ServiceRanges.parse(addresses, ports) == expected


@pytest.mark.parametrize(
    ("addresses", "ports", "message"),
    [
        pytest.param("x", "", "--service-cluster-ip-range=x: not a range; write one as 10.0.0.0/24", id="no range"),
        pytest.param("10.0.0.0/24,fd00::/108", "", "not a range; write one as 10.0.0.0/24 .two, for dual stack, are not impl", id="two"),
        pytest.param("fd00::/108", "", "--service-cluster-ip-range=fd00::/108: IPv6 is not implemented", id="IPv6"),
        pytest.param("10.0.0.0/30", "", "4 addresses are too few; take 8 at least, as in 10.0.0.0/29", id="a range that is too small"),
        pytest.param("", "a-b", "--service-node-port-range=a-b: not a range; write one as 30000-32767", id="no ports"),
        pytest.param("", "9-3", "ports go from 1 to 65535, the lower one first", id="the wrong way round"),
        pytest.param("", "3-65536", "ports go from 1 to 65535", id="beyond the last port"),
    ],
)
def test_an_invalid_range_is_refused_with_the_flag(addresses: str, ports: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ServiceRanges.parse(addresses, ports)


def service(name: str, **spec: object) -> Service:
    return Service(metadata=ObjectMeta(name=name, namespace="default"), spec=ServiceSpec(ports=[ServicePort(port=80)], **spec))  # type: ignore[arg-type]  # fields of a spec, whichever


async def test_a_server_gives_what_its_ranges_hold_and_refuses_the_rest() -> None:
    ranges = ServiceRanges.parse("10.96.0.0/29", "31000-31001")
    async with TlsTestServer(services=ranges) as server, Client(Transport(server.config)) as client:
        own = await client.get(Service, "kubernetes", namespace="default")
        assert own.spec.cluster_ip == "10.96.0.1"
        given = [await client.create(service(f"s{number}", type="NodePort")) for number in range(2)]
        assert {one.spec.ports[0].node_port for one in given} == {31000, 31001}
        assert {one.spec.cluster_ip for one in given} < {f"10.96.0.{number}" for number in range(2, 7)}
        for bad, message in (
            ({"cluster_ip": "10.0.0.9"}, "failed to allocate IP 10.0.0.9: the provided network does not match the current range"),
            ({"cluster_ip": "10.96.0.7"}, "failed to allocate IP 10.96.0.7: the provided network does not match the current range"),
        ):
            with pytest.raises(Invalid, match=message):
                await client.create(service("bad", **bad))
