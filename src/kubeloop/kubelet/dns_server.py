"""A DNS server on loopback: it answers names of the cluster from ``dns_records``, and forwards other names to this machine's resolvers.

It needs dnspython, the extra ``kubeloop[dns]``. Source: RFC 1035, 2308 (negative answers), 6891 (EDNS), 7766 (TCP).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import Sequence
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

from kubeloop.kubelet.container_spec import DOMAIN
from kubeloop.kubelet.dns_records import MAILBOX, NAME_SERVER, ClusterRecords, DnsRecord, Lookup, ServiceView
from kubeloop.meta.errors import ConfigError
from kubeloop.tasks import end_tasks
from kubeloop.timing import Clock, TimeLimit

if TYPE_CHECKING:
    import dns.message

_LOG = logging.getLogger("kubeloop.kubelet")
#: The port of all name servers in resolv.conf, which cannot name another one.
PORT = 53
#: Seconds for which clients may cache answers; the default of CoreDNS.
TTL = 5
#: Maximum bytes of an answer by UDP, without and with EDNS (dnsflagday.net/2020).
_PLAIN, _EDNS = 512, 1232
#: Seconds to wait for another resolver's answer, and for the next query of a TCP connection.
_UPSTREAM, _IDLE = 3.0, 10.0
#: Maximum numbers of simultaneous UDP queries and TCP connections.
_MAX_FORWARDED, _MAX_CONNECTIONS = 200, 100
#: Maximum number of names in a chain of CNAME records.
_MAX_ALIASES = 8
#: Number of addresses to try, from the end of the node's range.
_CANDIDATES = 32

#: Address and port of another resolver.
Resolver = tuple[str, int]


class DnsUnavailable(ConfigError):
    """The DNS server cannot run on this machine; the message says why, and what to do."""


def check_library() -> None:
    """Check that dnspython is installed.

    Raises:
        DnsUnavailable: The package is not installed.
    """
    try:
        import dns.asyncquery  # noqa: F401
    except ModuleNotFoundError as error:
        raise DnsUnavailable(f"cluster DNS needs the package {error.name}: pip install 'kubeloop[dns]'") from None


class DnsServer:
    """Serves names of the cluster by UDP and TCP.

    Guarantees:
        A malformed or slow query does not delay other queries. After ``close`` no task or socket is left.

    Args:
        view: Services and endpoints.
        resolvers: The resolvers to which queries for other names are forwarded, in order; without any, such queries are refused.
        clock: The clock of time limits and serial numbers.
    """

    def __init__(self, view: ServiceView, resolvers: Sequence[Resolver], clock: Clock) -> None:
        check_library()
        self._view = view
        self._resolvers = resolvers
        self._clock = clock
        self._records = ClusterRecords(view, "127.0.0.1")
        self._server: asyncio.Server | None = None
        self._socket: asyncio.DatagramTransport | None = None
        self._forwards: set[asyncio.Task[None]] = set()
        self._connections: set[asyncio.Task[Any]] = set()
        self.address = ""
        self.port = 0

    async def start(self, network: IPv4Network, port: int = PORT) -> None:
        """Listen at the last usable address of a range; ``address`` and ``port`` then say where.

        Args:
            network: The range.
            port: The port; 0: any free one, for tests.

        Raises:
            DnsUnavailable: The server cannot listen at any address of the range.
        """
        error: OSError | None = None
        for number in range(2, 2 + min(_CANDIDATES, network.num_addresses - 2)):
            address = str(network[-number])
            try:
                await self._bind(address, port)
            except PermissionError as refused:
                text = f"cluster DNS: cannot listen on {address}:{port}: {str(refused.strerror).lower()}"
                raise DnsUnavailable(f"{text}; it needs root, or sysctl net.ipv4.ip_unprivileged_port_start=53") from None
            except OSError as failed:
                error = failed
                continue
            return
        raise DnsUnavailable(f"cluster DNS: no address of {network} has a free port {port}: {error}")

    async def _bind(self, address: str, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, address, port)
        self.port = self._server.sockets[0].getsockname()[1]
        try:
            loop = asyncio.get_running_loop()
            self._socket, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), local_addr=(address, self.port))
        except BaseException:
            self._server.close()
            raise
        self.address = address
        self._records = ClusterRecords(self._view, address)

    async def close(self) -> None:
        """Stop listening, and end all queries and connections."""
        if self._socket is not None:
            self._socket.close()
        if self._server is not None:
            self._server.close()
        await end_tasks(*self._forwards, *self._connections, expected=(OSError,), logger=_LOG)

    # ------------------------------------------------------------------------------------------------------------------ transports

    def received(self, data: bytes, client: tuple[Any, ...]) -> None:
        """Answer the query in a datagram.

        Args:
            data: The query.
            client: The address to which the answer is sent.
        """
        query = self._read(data)
        if isinstance(query, bytes):
            self._send(query, client)
        elif query is not None:
            if len(self._forwards) >= _MAX_FORWARDED:
                return  # Drop the query: the client repeats it, as it does when the network loses a packet.
            task = asyncio.ensure_future(self._answer_datagram(query, client))
            self._forwards.add(task)
            task.add_done_callback(self._forwards.discard)

    async def _answer_datagram(self, query: dns.message.Message, client: tuple[Any, ...]) -> None:
        size = min(max(_PLAIN, query.payload), _EDNS) if query.edns >= 0 else _PLAIN
        self._send((await self._answer(query)).to_wire(max_size=size, prefer_truncation=True), client)

    def _send(self, data: bytes, client: tuple[Any, ...]) -> None:
        if data and self._socket is not None and not self._socket.is_closing():
            self._socket.sendto(data, client)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine: Python 3.11 logs a traceback when the task that it makes of a coroutine is cancelled.
        task = asyncio.ensure_future(self._serve_connection(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._connections) <= _MAX_CONNECTIONS:
                await self._serve(reader, writer)
        except (OSError, EOFError, TimeoutError):
            return
        except Exception:  # noqa: BLE001 - it may be any bug, and the others go on
            _LOG.exception("a connection of DNS over TCP failed")
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with TimeLimit(self._clock, _IDLE):
                (length,) = struct.unpack("!H", await reader.readexactly(2))
                query = self._read(await reader.readexactly(length))
            if query is None:
                return
            answer = query if isinstance(query, bytes) else (await self._answer(query)).to_wire(max_size=0xFFFF, prefer_truncation=True)
            writer.write(struct.pack("!H", len(answer)) + answer)
            async with TimeLimit(self._clock, _IDLE):
                await writer.drain()

    # --------------------------------------------------------------------------------------------------------------------- answers

    def _read(self, data: bytes) -> dns.message.Message | bytes | None:
        """Return the query in a message; the answer FORMERR, as bytes, to a malformed query; or None for a message that gets no answer."""
        import dns.exception
        import dns.message
        import dns.rcode

        # Two servers could otherwise answer each other's answers forever.
        if len(data) < 12 or data[2] & 0x80:
            return None
        try:
            query = dns.message.from_wire(data)
        except (dns.exception.DNSException, ValueError):
            return data[:2] + bytes((data[2] & 0x79 | 0x80, int(dns.rcode.FORMERR))) + bytes(8)
        return query

    async def _answer(self, query: dns.message.Message) -> dns.message.Message:
        import dns.flags
        import dns.message
        import dns.opcode
        import dns.rcode
        import dns.rdataclass
        import dns.rdatatype

        response = dns.message.make_response(query, recursion_available=bool(self._resolvers), our_payload=_EDNS)
        if query.opcode() != dns.opcode.QUERY:
            response.set_rcode(dns.rcode.NOTIMP)
            return response
        if len(query.question) != 1:
            response.set_rcode(dns.rcode.FORMERR)
            return response
        question = query.question[0]
        if question.rdclass != dns.rdataclass.IN or question.rdtype in (dns.rdatatype.AXFR, dns.rdatatype.IXFR):
            response.set_rcode(dns.rcode.REFUSED)
            return response
        try:
            await self._resolve(response, question.name, question.rdtype)
        except Exception:  # noqa: BLE001  # one query must not end the connection of others
            _LOG.exception("cluster DNS: a query for %s failed", question.name)
            response.set_rcode(dns.rcode.SERVFAIL)
        return response

    async def _resolve(self, response: dns.message.Message, name: Any, kind: Any) -> None:
        """Add the records of a name to a response, and the records of the names to which its CNAME records lead."""
        import dns.flags
        import dns.name
        import dns.rcode
        import dns.rdatatype

        for _ in range(_MAX_ALIASES):
            text = ".".join(label.decode("ascii", "replace") for label in name.labels[:-1]).lower()
            lookup = self._find(text, dns.rdatatype.to_text(kind))
            if lookup is None:
                await self._forward(response, name, kind)
                return
            if not response.answer:
                response.flags |= dns.flags.AA
            _add(response.answer, name, lookup.records)
            _add(response.additional, None, lookup.additional)
            alias = next((record.data for record in lookup.records if record.kind == "CNAME"), "")
            if not alias or kind == dns.rdatatype.CNAME:
                if not lookup.exists:
                    response.set_rcode(dns.rcode.NXDOMAIN)
                if not lookup.records:
                    _add(response.authority, None, [self._authority(text)])
                return
            name = dns.name.from_text(alias)
        response.set_rcode(dns.rcode.SERVFAIL)

    def _find(self, name: str, kind: str) -> Lookup | None:
        if kind == "SOA" and name == DOMAIN:
            return Lookup(True, [self._authority(name)])
        return self._records.find(name, kind)

    def _authority(self, name: str) -> DnsRecord:
        zone = DOMAIN if name.endswith(DOMAIN) else name.split(".", 1)[-1]
        return DnsRecord(zone, "SOA", f"{NAME_SERVER}. {MAILBOX}. {int(self._clock.wall().timestamp())} 7200 1800 86400 {TTL}")

    async def _forward(self, response: dns.message.Message, name: Any, kind: Any) -> None:
        """Forward a query to this machine's resolvers in order, and add the first answer to a response."""
        import dns.asyncquery
        import dns.exception
        import dns.flags
        import dns.message
        import dns.rcode

        if not self._resolvers:
            response.set_rcode(dns.rcode.REFUSED)
            return
        query = dns.message.make_query(name, kind, use_edns=0, payload=_EDNS)
        for host, port in self._resolvers:
            with contextlib.suppress(dns.exception.DNSException, OSError, EOFError):
                answer, _ = await dns.asyncquery.udp_with_fallback(query, host, _UPSTREAM, port, ignore_unexpected=True)
                response.flags &= ~int(dns.flags.AA)
                response.set_rcode(answer.rcode())
                for section, received in ((response.answer, answer.answer), (response.authority, answer.authority)):
                    section.extend(received)
                response.additional.extend(answer.additional)
                return
        response.set_rcode(dns.rcode.SERVFAIL)


def _add(section: list[Any], owner: Any, records: Sequence[DnsRecord]) -> None:
    import dns.name
    import dns.rrset

    groups: dict[tuple[str, str], list[str]] = {}
    for record in records:
        groups.setdefault((record.name, record.kind), []).append(record.data)
    for (name, kind), texts in groups.items():
        section.append(dns.rrset.from_text(owner if owner is not None else dns.name.from_text(name), TTL, "IN", kind, *texts))


class _Datagrams(asyncio.DatagramProtocol):
    """Passes received datagrams to a ``DnsServer``."""

    def __init__(self, server: DnsServer) -> None:
        self._server = server

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._server.received(data, addr)
