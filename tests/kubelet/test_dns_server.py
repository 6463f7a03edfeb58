"""The DNS server over its sockets, and names in containers."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import dns.asyncquery
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
import pytest

from kubeloop.api.apps.v1 import StatefulSet
from kubeloop.api.core.v1 import Pod, Service
from kubeloop.client import Client
from kubeloop.kubelet.dns_records import ServiceEndpoint
from kubeloop.kubelet.dns_server import DnsServer, DnsUnavailable, Resolver, check_library
from kubeloop.timing import SystemClock
from tests.kubelet.conftest import ProcessCluster
from tests.kubelet.test_process_pods import TIMEOUT, ended, is_ready, shell_pod, wait

pytestmark = pytest.mark.timeout(120)
NETWORK = IPv4Network("127.111.0.0/24")
#: Seconds for a query on a slow machine.
PATIENCE = 20.0


class View:
    """A service with a cluster IP, one with hundreds of endpoints, and an alias for a name outside."""

    def service(self, namespace: str, name: str) -> dict[str, Any] | None:
        specs: dict[str, dict[str, Any]] = {
            "web": {"clusterIP": "127.96.0.7", "ports": [{"name": "http", "port": 80}]},
            "many": {"clusterIP": "None"},
            "far": {"type": "ExternalName", "externalName": "outside.example"},
            "near": {"type": "ExternalName", "externalName": "web.shop.svc.cluster.local"},
            "circle": {"type": "ExternalName", "externalName": "circle.shop.svc.cluster.local"},
        }
        return {"metadata": {}, "spec": specs[name]} if name in specs else None

    def endpoints(self, namespace: str, name: str) -> Iterable[ServiceEndpoint]:
        return [ServiceEndpoint(f"127.64.{number // 250}.{number % 250 + 1}", "", (("", "TCP", -1),)) for number in range(500)]

    def by_address(self, address: str) -> Iterable[tuple[str, str, ServiceEndpoint | None]]:
        if address == "broken":
            raise ValueError(address)
        return ()


@asynccontextmanager
async def serving(*resolvers: Resolver) -> AsyncIterator[DnsServer]:
    server = DnsServer(View(), resolvers, SystemClock())
    await server.start(NETWORK, 0)
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def outside(answer: Callable[[dns.message.Message], bytes]) -> AsyncIterator[Resolver]:
    """A resolver that answers each datagram as ``answer`` says."""

    class Protocol(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
            transport.sendto(answer(dns.message.from_wire(data)), addr)

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Protocol, local_addr=("127.0.0.1", 0))
    try:
        yield transport.get_extra_info("sockname")[:2]
    finally:
        transport.close()


def known(query: dns.message.Message) -> bytes:
    response = dns.message.make_response(query, recursion_available=True)
    response.answer.append(dns.rrset.from_text(query.question[0].name, 60, "IN", "A", "192.0.2.1"))
    return response.to_wire()


async def ask(server: DnsServer, name: str, kind: str = "A", *, tcp: bool = False) -> dns.message.Message:
    query = dns.message.make_query(name, kind)
    call = dns.asyncquery.tcp if tcp else dns.asyncquery.udp
    return await call(query, server.address, PATIENCE, server.port)


def addresses(response: dns.message.Message) -> list[str]:
    return [record.address for group in response.answer for record in group if group.rdtype in (dns.rdatatype.A, dns.rdatatype.AAAA)]


@pytest.mark.parametrize("tcp", [False, True], ids=["UDP", "TCP"])
async def test_names_of_the_cluster_are_answered_with_authority(tcp: bool) -> None:
    async with serving() as server:
        response = await ask(server, "WEB.shop.svc.Cluster.local", tcp=tcp)
        assert (addresses(response), bool(response.flags & dns.flags.AA)) == (["127.96.0.7"], True)
        missing = await ask(server, "none.shop.svc.cluster.local", tcp=tcp)
        assert (missing.rcode(), missing.authority[0].rdtype) == (dns.rcode.NXDOMAIN, dns.rdatatype.SOA)
        empty = await ask(server, "web.shop.svc.cluster.local", "AAAA", tcp=tcp)
        assert (empty.rcode(), empty.answer, empty.authority[0].rdtype) == (dns.rcode.NOERROR, [], dns.rdatatype.SOA)
        soa = await ask(server, "cluster.local", "SOA", tcp=tcp)
        assert soa.answer[0][0].mname.to_text() == "ns.dns.cluster.local."


async def test_an_answer_that_is_too_long_for_udp_is_truncated_and_comes_whole_by_tcp() -> None:
    async with serving() as server:
        assert (await ask(server, "many.shop.svc.cluster.local")).flags & dns.flags.TC
        assert len(addresses(await ask(server, "many.shop.svc.cluster.local", tcp=True))) == 500


async def test_several_queries_share_a_tcp_connection() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection(server.address, server.port)
        for _ in range(3):
            query = dns.message.make_query("web.shop.svc.cluster.local", "A").to_wire()
            writer.write(struct.pack("!H", len(query)) + query)
            (size,) = struct.unpack("!H", await reader.readexactly(2))
            assert addresses(dns.message.from_wire(await reader.readexactly(size))) == ["127.96.0.7"]
        writer.close()


async def test_a_server_that_stops_ends_an_open_connection_without_a_log_of_errors(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection(server.address, server.port)
        query = dns.message.make_query("web.shop.svc.cluster.local", "A").to_wire()
        writer.write(struct.pack("!H", len(query)) + query)
        (size,) = struct.unpack("!H", await reader.readexactly(2))
        await reader.readexactly(size)
    assert await reader.read() == b""
    writer.close()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_other_names_come_from_this_machines_resolvers_and_aliases_are_followed() -> None:
    async with outside(known) as resolver, serving(("127.0.0.1", 1), resolver) as server:
        response = await ask(server, "example.org")
        assert (addresses(response), bool(response.flags & dns.flags.AA)) == (["192.0.2.1"], False)
        alias = await ask(server, "far.shop.svc.cluster.local")
        assert (alias.answer[0].rdtype, addresses(alias)) == (dns.rdatatype.CNAME, ["192.0.2.1"])
        assert addresses(await ask(server, "near.shop.svc.cluster.local")) == ["127.96.0.7"]
        assert (await ask(server, "circle.shop.svc.cluster.local")).rcode() == dns.rcode.SERVFAIL


async def test_without_resolvers_other_names_are_refused_and_unreachable_ones_fail() -> None:
    async with serving() as server:
        assert (await ask(server, "example.org")).rcode() == dns.rcode.REFUSED
    async with serving(("127.0.0.1", 1)) as server:
        assert (await ask(server, "example.org")).rcode() == dns.rcode.SERVFAIL


async def test_a_resolver_that_answers_nonsense_does_not_end_the_server() -> None:
    async with outside(lambda query: query.to_wire()[:2] + b"nonsense that is long enough") as resolver, serving(resolver) as server:
        assert (await ask(server, "example.org")).rcode() == dns.rcode.SERVFAIL
        assert addresses(await ask(server, "web.shop.svc.cluster.local")) == ["127.96.0.7"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda query: query.set_opcode(dns.opcode.NOTIFY), dns.rcode.NOTIMP, id="another operation"),
        pytest.param(lambda query: query.question.clear(), dns.rcode.FORMERR, id="no question"),
        pytest.param(
            lambda query: query.find_rrset(query.question, query.question[0].name, 3, 1, create=True), dns.rcode.REFUSED, id="class"
        ),
    ],
)
async def test_queries_that_make_no_sense_are_refused(change: Callable[[Any], object], expected: int) -> None:
    query = dns.message.make_query("web.shop.svc.cluster.local", "A")
    if expected == dns.rcode.REFUSED:
        query = dns.message.make_query("web.shop.svc.cluster.local", "A", "CH")
    else:
        change(query)
    async with serving() as server:
        assert (await _exchange(server, query.to_wire()))[3] & 0xF == expected


async def test_transfers_are_refused() -> None:
    async with serving() as server:
        assert (await _exchange(server, dns.message.make_query("cluster.local", "AXFR").to_wire()))[3] & 0xF == dns.rcode.REFUSED


async def test_bytes_that_are_no_query_are_answered_or_dropped_and_the_server_goes_on() -> None:
    async with serving() as server:
        transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(_Client, remote_addr=(server.address, server.port))
        answer = dns.message.make_response(dns.message.make_query("web.shop.svc.cluster.local", "A")).to_wire()
        for data in (b"", b"short", answer, b"\x12\x34\x01\x00\x00\x01" + bytes(6) + b"\xff" * 5):
            transport.sendto(data)
        reply = await asyncio.wait_for(protocol.received.get(), PATIENCE)
        assert (reply[:2], reply[3] & 0xF) == (b"\x12\x34", dns.rcode.FORMERR)
        assert protocol.received.empty()
        transport.close()
        assert addresses(await ask(server, "web.shop.svc.cluster.local")) == ["127.96.0.7"]


class _Client(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.received: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, _: object) -> None:
        self.received.put_nowait(data)


async def _exchange(server: DnsServer, data: bytes) -> bytes:
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(_Client, remote_addr=(server.address, server.port))
    try:
        transport.sendto(data)
        return await asyncio.wait_for(protocol.received.get(), PATIENCE)
    finally:
        transport.close()


async def test_a_second_server_takes_the_next_address() -> None:
    async with serving() as server:
        port = server.port
        second = DnsServer(View(), (), SystemClock())
        await second.start(NETWORK, port)
        assert (server.address, second.address) == ("127.111.0.254", "127.111.0.253")
        await second.close()


def test_the_error_for_the_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dns", None)
    monkeypatch.setitem(sys.modules, "dns.asyncquery", None)
    with pytest.raises(DnsUnavailable, match=r"pip install 'kubeloop\[dns\]'"):
        check_library()


# -------------------------------------------------------------------------------------------------------------------- containers


def has_port_53() -> bool:
    """Return whether this user may listen on port 53."""
    return os.geteuid() == 0 or int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 53


_PROGRAM = """
import socket
for name in NAMES:
    try:
        print(name, *sorted({address[4][0] for address in socket.getaddrinfo(name, 80, socket.AF_INET)}))
    except OSError:
        print(name, "none")
"""


@pytest.mark.embedded
async def test_containers_find_services_and_pods_by_their_names(client: Client, cluster: ProcessCluster) -> None:
    namespace = client.namespace
    labels = {"app": "db"}
    headless = {"clusterIP": "None", "selector": labels, "ports": [{"name": "sql", "port": 5432}]}
    await client.create(Service.from_dict({"metadata": {"name": "db"}, "spec": headless}))
    web = await client.create(Service.from_dict({"metadata": {"name": "web"}, "spec": {"selector": labels, "ports": [{"port": 80}]}}))
    container = {"name": "main", "image": "idle"}
    template = {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}
    spec = {"serviceName": "db", "replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    await client.create(StatefulSet.from_dict({"metadata": {"name": "db"}, "spec": spec}))
    await client.wait_for(StatefulSet, "db", lambda stateful_set: stateful_set.status.ready_replicas == 2, timeout=TIMEOUT)
    ips = [(await wait(client, f"db-{number}", is_ready))["podIP"] for number in range(2)]
    names = ["web", f"web.{namespace}", f"web.{namespace}.svc.cluster.local", "db-0.db", "db", "none.svc.cluster.local"]
    pod = shell_pod("finder", _PROGRAM.replace("NAMES", repr(names)), restartPolicy="OnFailure", container={"command": ["python3", "-c"]})

    async def find() -> list[str]:
        await client.create(pod)
        await wait(client, "finder", ended)
        lines = (await client.pods.logs("finder")).splitlines()
        await client.delete(Pod, "finder")
        await client.wait_gone(Pod, "finder", timeout=TIMEOUT)
        return lines

    expected = [
        *(f"{name} {web.spec.cluster_ip}" for name in names[:3]),
        f"db-0.db {ips[0]}",
        f"db {' '.join(sorted(ips))}",
        "none.svc.cluster.local none",
    ]
    lines: list[str] = []
    for _ in range(5):  # endpoints of the second pod may be a moment behind
        lines = await find()
        if lines == expected:
            break
    assert lines == expected


@pytest.mark.embedded
async def test_the_resolver_of_a_container_is_that_of_its_policy(client: Client, cluster: ProcessCluster) -> None:
    own = {"nameservers": ["192.0.2.1"], "searches": ["a.example"], "options": [{"name": "ndots", "value": "2"}]}
    pod = shell_pod("own", "cat /etc/resolv.conf", restartPolicy="Never", dnsPolicy="None", dnsConfig=own)
    await client.create(pod)
    await client.create(shell_pod("cluster", "cat /etc/resolv.conf", restartPolicy="Never"))
    for name in ("own", "cluster"):
        await wait(client, name, ended)
    assert await client.pods.logs("own") == "search a.example\nnameserver 192.0.2.1\noptions ndots:2\n"
    lines = (await client.pods.logs("cluster")).splitlines()
    if not has_port_53():
        pytest.skip("cluster DNS needs port 53")
    assert lines[0].startswith(f"search {client.namespace}.svc.cluster.local svc.cluster.local cluster.local")
    assert lines[1].startswith("nameserver 127.")
