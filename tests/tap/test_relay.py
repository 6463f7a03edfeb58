"""What passes through the tap, and what clients get when the server behind it is away, slow or breaks off."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
import ssl

import aiohttp
import pytest

from kubeloop.meta.tls import client_tls, load_pair, server_tls
from kubeloop.pki.authority import CertificateAuthority
from kubeloop.tap.listener import connect_target
from kubeloop.tap.traffic import (
    ConnectionClosed,
    ConnectionOpened,
    RequestData,
    RequestStarted,
    ResponseData,
    ResponseStarted,
    StillWaiting,
)
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from tests.tap.open_tap import OpenTap, Script, answers, open_tap, request_head, response, scripted_server

POD = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0"}}\n'
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
GET = b"GET /api/v1/pods/x HTTP/1.1\r\nHost: tap\r\n\r\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        pytest.param(POD, ("Content-Type: application/json",), id="JSON passes unchanged"),
        pytest.param(
            gzip.compress(POD), ("Content-Type: application/json", "Content-Encoding: gzip"), id="a compressed body stays compressed"
        ),
        pytest.param(
            b"k8s\0\xff\x00", ("Content-Type: application/vnd.kubernetes.protobuf",), id="bytes that no decoder knows pass unchanged"
        ),
        pytest.param(b"x" * 3_000_000, ("Content-Type: text/plain",), id="a large body passes whole"),
        pytest.param(b"", ("Content-Type: application/json",), id="an empty body stays empty"),
    ],
)
async def test_a_response(body: bytes, headers: tuple[str, ...]) -> None:
    async with scripted_server(answers(response(body, *headers))) as server, open_tap(server) as tap, tap.session() as session:
        async with session.get("/api/v1/pods/x?a=%20b") as reply:
            assert await reply.read() == body
            for header in headers:
                name, _, value = header.partition(": ")
                assert reply.headers[name] == value
            assert len(reply.headers.getall("Date")) == 1
        assert await tap.outcome() == ""
        assert b"".join(fact.data for fact in tap.facts if isinstance(fact, ResponseData)) == body


async def test_the_server_sees_the_clients_headers_and_nothing_of_the_tap() -> None:
    heads: list[str] = []
    async with scripted_server(answers(response(POD), heads=heads)) as server, open_tap(server) as tap, tap.session() as session:
        headers = {"Authorization": "Bearer secret", "Impersonate-User": "jane", "User-Agent": "demo/v1", "X-Odd": "a;b"}
        async with session.get("/api/v1/pods?limit=5&labelSelector=a%3Db", headers=headers):
            pass
    lines = heads[0].split("\r\n")
    assert lines[0] == "GET /api/v1/pods?limit=5&labelSelector=a%3Db HTTP/1.1"
    assert lines[1] == f"Host: {server.removeprefix('http://')}"
    for name, value in headers.items():
        assert f"{name}: {value}" in lines
    assert not [line for line in lines if line.lower().startswith(("x-forwarded", "via", "forwarded"))]


@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "chunked"])
async def test_the_body_of_a_request_passes(chunked: bool) -> None:
    received = bytearray()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await request_head(reader)
        assert ("Transfer-Encoding: chunked" in head) == chunked
        end = b"0\r\n\r\n" if chunked else b"}"
        while not received.endswith(end):
            received.extend(await reader.read(65536))
        writer.write(response(POD))

    async def pieces() -> asyncio.StreamReader:
        reader = asyncio.StreamReader()
        reader.feed_data(b'{"a":1}')
        reader.feed_eof()
        return reader

    async with scripted_server(script) as server, open_tap(server) as tap, tap.session() as session:
        async with session.post("/api/v1/pods", data=await pieces() if chunked else b'{"a":1}') as reply:
            assert reply.status == 200
        assert b"".join(fact.data for fact in tap.facts if isinstance(fact, RequestData)) == b'{"a":1}'
    assert bytes(received) == (b'7\r\n{"a":1}\r\n0\r\n\r\n' if chunked else b'{"a":1}')


async def test_requests_of_one_connection_share_an_upstream_connection() -> None:
    heads: list[str] = []
    connections = 0
    script = answers(response(POD), heads=heads)

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await script(reader, writer)

    async with scripted_server(counted) as server, open_tap(server) as tap, tap.session() as session:
        for _ in range(3):
            async with session.get("/api") as reply:
                await reply.read()
        started = [fact.connected is not None for fact in tap.facts if isinstance(fact, ResponseStarted)]
    assert (connections, len(heads), started) == (1, 3, [True, False, False])
    assert isinstance(await tap.fact(ConnectionClosed), ConnectionClosed)


async def test_neither_side_of_the_tap_delays_small_packets() -> None:
    async with scripted_server(answers(response(POD))) as server, open_tap(server) as tap:
        _, writer = await tap.connection()
        own = writer.get_extra_info("sockname")
        accepted = next(
            one
            for one in gc.get_objects()
            if isinstance(one, socket.socket) and one.fileno() >= 0 and one.type == socket.SOCK_STREAM and peer(one) == own
        )
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()


def peer(connection: socket.socket) -> object:
    try:
        return connection.getpeername()
    except OSError:
        return None


async def test_an_upstream_connection_that_was_closed_while_idle_is_replaced() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(response(POD))

    async with scripted_server(once) as server, open_tap(server) as tap, tap.session() as session:
        for _ in range(3):
            async with session.get("/api") as reply:
                assert await reply.read() == POD


async def refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request_head(reader)


@pytest.mark.parametrize(
    ("script", "status", "reason", "text"),
    [
        pytest.param(None, 503, "ServiceUnavailable", "connect: connection refused", id="a server that is away is a 503"),
        pytest.param(refusing, 502, "BadGateway", "EOF", id="a server that closes without a response is a 502"),
        pytest.param(
            answers(b"SSH-2.0-x\r\n\r\n"), 502, "BadGateway", "malformed HTTP response", id="a server that speaks no HTTP is a 502"
        ),
    ],
)
async def test_a_server_without_a_response(script: Script | None, status: int, reason: str, text: str) -> None:
    async with scripted_server(script or refusing) as server:
        url = server if script is not None else f"http://127.0.0.1:{free_port()}"
        async with open_tap(url) as tap, tap.session() as session, session.get("/api/v1/pods") as reply:
            found = await reply.json()
            assert (reply.status, found["kind"], found["code"], found["reason"]) == (status, "Status", status, reason)
            assert text in found["message"]
            assert found["message"].startswith(f"kubeloop tap: no response from {url.removeprefix('http://')}: ")
            assert await tap.outcome() == found["message"]


async def test_an_untrusted_certificate_of_the_server_is_a_502_that_says_so() -> None:
    authority = CertificateAuthority.create("other")
    issued = authority.issue("x", ip_addresses=["127.0.0.1"], server=True)
    context = server_tls()
    load_pair(context, issued.certificate, issued.key)
    async with await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with open_tap(url) as tap, tap.session() as session, session.get("/api") as reply:
            found = await reply.json()
    assert (reply.status, found["reason"]) == (502, "BadGateway")
    assert found["message"].endswith("tls: failed to verify certificate: x509: certificate signed by unknown authority")


async def test_a_response_that_breaks_off_in_a_frame_breaks_off_for_the_client() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(CHUNKED + b'1d\r\n{"type":"ADDED","object":{}}\n\r\n40\r\n{"type":"ADD')

    async with scripted_server(script) as server, open_tap(server) as tap:
        received = await tap.raw(b"GET /api/v1/pods?watch=true HTTP/1.1\r\nHost: tap\r\n\r\n")
        assert b'{"type":"ADDED","object":{}}' in received
        assert not received.endswith(b"0\r\n\r\n")
        assert await tap.outcome() == "the server's connection broke: EOF"


async def test_the_upstream_request_ends_when_the_client_leaves() -> None:
    left = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(CHUNKED + b'1d\r\n{"type":"ADDED","object":{}}\n\r\n')
        assert await reader.read() == b""
        left.set()

    async with scripted_server(script) as server, open_tap(server) as tap:
        reader, writer = await tap.connection()
        writer.write(b"GET /api/v1/pods?watch=true HTTP/1.1\r\nHost: tap\r\n\r\n")
        await reader.readuntil(b"}\n\r\n")
        writer.transport.abort()
        async with asyncio.timeout(10):
            await left.wait()
        assert await tap.outcome() == "the client closed the connection"


async def test_the_upstream_request_ends_when_the_client_leaves_before_the_response() -> None:
    left = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        assert await reader.read() == b""
        left.set()

    async with scripted_server(script) as server, open_tap(server) as tap:
        _, writer = await tap.connection()
        writer.write(GET)
        await tap.fact(RequestStarted)
        writer.transport.abort()
        async with asyncio.timeout(10):
            await left.wait()
        assert await tap.outcome() == "the client closed the connection"


async def test_a_client_that_does_not_read_stops_the_server() -> None:
    written = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await request_head(reader)
        writer.write(CHUNKED)
        while written < 100 << 20:
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()
            written += 65536

    async with scripted_server(script) as server, open_tap(server) as tap:
        reader, writer = await tap.connection()
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # asyncio has no public way
        writer.write(GET)
        before = -1
        async with asyncio.timeout(10):
            while before != written or not written:  # it has stopped when nothing more is written for a while
                before = written
                for _ in range(2000):
                    await asyncio.sleep(0)
        assert 0 < written < 30 << 20
        writer.transport.abort()
        await tap.outcome()
        del reader


async def test_a_request_that_waits_is_reported_after_5_10_and_30_seconds() -> None:
    clock = FakeClock()
    waiting, arrived = asyncio.Event(), asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        arrived.set()
        await waiting.wait()
        writer.write(response(POD))

    async with scripted_server(script) as server, open_tap(server, clock=clock) as tap, tap.session() as session:
        request = asyncio.ensure_future(session.get("/api/v1/pods"))
        await arrived.wait()
        await clock.advance(20)
        assert [fact.seconds for fact in tap.facts if isinstance(fact, StillWaiting)] == [5, 10]
        waiting.set()
        async with await request as reply:
            await reply.read()
        await clock.advance(60)
    assert [fact.seconds for fact in tap.facts if isinstance(fact, StillWaiting)] == [5, 10]


async def test_a_status_without_a_body_stays_without_one() -> None:
    async with scripted_server(answers(b"HTTP/1.1 204 No Content\r\n\r\n")) as server, open_tap(server) as tap, tap.session() as session:
        async with session.delete("/api/v1/pods/x") as reply:
            assert (reply.status, await reply.read()) == (204, b"")
            assert "Transfer-Encoding" not in reply.headers
        assert await tap.outcome() == ""


async def test_a_head_request_gets_the_length_and_no_body() -> None:
    async with (
        scripted_server(answers(b"HTTP/1.1 200 OK\r\nContent-Length: 61\r\n\r\n")) as server,
        open_tap(server) as tap,
        tap.session() as session,
    ):
        async with session.head("/api/v1/pods/x") as reply:
            assert (reply.status, reply.headers.getall("Content-Length"), await reply.read()) == (200, ["61"], b"")
        assert await tap.outcome() == ""


async def test_an_upgraded_connection_carries_bytes_both_ways() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await request_head(reader)
        assert "Upgrade: SPDY/3.1" in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream: v4\r\n\r\nhello ")
        writer.write((await reader.readexactly(5)).upper())

    async with scripted_server(script) as server, open_tap(server) as tap:
        head = b"POST /api/v1/namespaces/a/pods/x/exec HTTP/1.1\r\nHost: tap\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        received = await tap.raw(head + b"Content-Length: 0\r\n\r\nworld")
        assert received.startswith(b"HTTP/1.1 101 ")
        assert b"X-Stream: v4\r\n" in received
        assert received.endswith(b"\r\n\r\nhello WORLD")
        assert await tap.outcome() == ""


async def test_a_refused_upgrade_reaches_the_client() -> None:
    refusal = response(b'{"kind":"Status"}', "Content-Type: application/json", status="403 Forbidden")
    async with scripted_server(answers(refusal)) as server, open_tap(server) as tap, tap.session() as session:
        headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
        async with session.get("/api/v1/namespaces/a/pods/x/exec", headers=headers) as reply:
            assert (reply.status, await reply.text()) == (403, '{"kind":"Status"}')


async def test_a_client_that_does_not_trust_the_tap_is_reported() -> None:
    async with open_tap("http://127.0.0.1:1") as tap:
        curl = await asyncio.create_subprocess_exec("curl", "--silent", f"{tap.url}/api", stdout=asyncio.subprocess.DEVNULL)
        assert await tap.failure() == "the client does not trust the certificate of the tap (tlsv1 alert unknown ca)"
        assert await curl.wait() == 60  # CURLE_PEER_FAILED_VERIFICATION


async def test_a_client_that_closes_the_connection_in_the_handshake_is_reported() -> None:
    async with open_tap("http://127.0.0.1:1") as tap:
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", tap.port, ssl=client_tls())
        assert "does it trust the certificate of the tap?" in await tap.failure()


async def test_the_tap_requests_no_client_certificate() -> None:
    async with TlsTestServer() as server, open_tap(server.config) as tap:
        reader, writer = await tap.connection()
        secured = writer.get_extra_info("ssl_object")
        assert secured.version() == "TLSv1.3"
        writer.write(b"GET /apis/authentication.k8s.io HTTP/1.1\r\nHost: tap\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        opened = await tap.fact(ConnectionOpened)
        assert isinstance(opened, ConnectionOpened)
        assert (opened.tls, opened.server) == ("TLSv1.3", server.url.removeprefix("https://"))


async def connected(tap: OpenTap, target: str, tls: ssl.SSLContext, name: str = "localhost") -> bytes:
    """What a GET through a CONNECT tunnel brings."""
    reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    established = await reader.readuntil(b"\r\n\r\n")
    assert established.startswith(b"HTTP/1.1 200 "), established
    await writer.start_tls(tls, server_hostname=name)
    writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    received = await reader.read()
    writer.close()
    return received


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"], ids=["the name of its handshake", "the address of its CONNECT"])
async def test_a_client_of_the_proxy_gets_a_certificate_for(name: str) -> None:
    async with TlsTestServer() as server, open_tap(server.config, connect=True) as tap:
        received = await connected(tap, server.url.removeprefix("https://"), tap.tls, name)
        assert received.startswith(b"HTTP/1.1 200")
        assert isinstance(fact := await tap.fact(RequestStarted), RequestStarted)
        assert fact.url == f"{server.url}/version"


async def test_a_server_other_than_the_kubeconfigs_is_verified_by_the_systems_authorities() -> None:
    async with TlsTestServer() as server, TlsTestServer() as other, open_tap(server.config, connect=True) as tap:
        received = await connected(tap, other.url.removeprefix("https://"), tap.tls)
        assert received.startswith(b"HTTP/1.1 502")
        assert b"certificate signed by unknown authority" in received


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        pytest.param(b"CONNECT host:443 HTTP/1.1\r\n\r\n", ("host", 443), id="a name"),
        pytest.param(b"CONNECT [::1]:6443 HTTP/1.1\r\nHost: x\r\n\r\n", ("::1", 6443), id="an IPv6 address"),
        pytest.param(b"GET http://host/ HTTP/1.1\r\n\r\n", "this proxy serves CONNECT only", id="a plain request is refused"),
        pytest.param(b"CONNECT host HTTP/1.1\r\n\r\n", "not HOST:PORT", id="a target without a port is refused"),
        pytest.param(b"CONNECT host:0 HTTP/1.1\r\n\r\n", "not HOST:PORT", id="port 0 is refused"),
        pytest.param(b"CONNECT host:99999 HTTP/1.1\r\n\r\n", "not HOST:PORT", id="an impossible port is refused"),
        pytest.param(b"CONNECT :443 HTTP/1.1\r\n\r\n", "not HOST:PORT", id="a target without a host is refused"),
        pytest.param(b"CONNECT h:443 HTTP/1.1\r\n\r\n\x16\x03", "sent bytes before the response", id="early bytes are refused"),
        pytest.param(b"\x16\x03\x01\r\n\r\n", "this proxy serves CONNECT only", id="rubbish is refused"),
    ],
)
def test_connect_target(head: bytes, expected: tuple[str, int] | str) -> None:
    if isinstance(expected, tuple):
        assert connect_target(head) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            connect_target(head)


async def test_a_plain_request_to_the_proxy_gets_a_400_with_the_reason() -> None:
    async with open_tap("https://127.0.0.1:1", connect=True) as tap, aiohttp.ClientSession() as session:
        async with session.get("http://127.0.0.1:1/api", proxy=f"http://127.0.0.1:{tap.port}") as reply:
            assert reply.status == 400
            assert "this proxy serves CONNECT only" in await reply.text()
        assert "this proxy serves CONNECT only" in await tap.failure()


async def test_the_client_certificate_of_the_kubeconfig_identifies_requests_through_the_tap() -> None:
    async with TlsTestServer() as server, open_tap(server.config) as tap, tap.session() as session:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        async with session.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json=review) as reply:
            found = await reply.json()
    assert found["status"]["userInfo"]["username"] == "kubeloop-admin"
