"""Bytes on the socket: malformed requests, unclear framing, unknown methods, and headers about the connection."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

import pytest

from kubeloop.config import RequestAuthenticator
from kubeloop.timing import SystemClock
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

HOST = b"Host: x\r\n"
BODY = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w"}}'
POST = b"POST /api/v1/namespaces/default/configmaps?dryRun=All HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
END = "Connection: close"
NOT_ALLOWED = "the server does not allow this method on the requested resource"


class RawClient:
    """Sends bytes as an administrator; ``first`` reads one answer's head and what came with it."""

    def __init__(self, server: ServerUnderTest, tls: ssl.SSLContext) -> None:
        self._address = urlsplit(server.config.server)
        self._tls = tls

    async def all(self, sent: bytes) -> str:
        """Everything until the server closes."""
        reader, writer = await self._open(sent)
        try:
            return (await asyncio.wait_for(reader.read(), 30)).decode()
        finally:
            writer.transport.abort()

    async def answers(self, sent: bytes, count: int) -> list[tuple[str, str]]:
        """Heads and bodies of so many answers with a Content-Length, on a connection that stays."""
        reader, writer = await self._open(sent)
        found = []
        try:
            async with asyncio.timeout(30):
                for _ in range(count):
                    head = (await reader.readuntil(b"\r\n\r\n")).decode()
                    length = next((int(line[16:]) for line in head.split("\r\n") if line.startswith("Content-Length: ")), 0)
                    found.append((head, (await reader.readexactly(length)).decode()))
        finally:
            writer.transport.abort()
        return found

    async def _open(self, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self._address.hostname, self._address.port, ssl=self._tls)
        writer.write(sent)
        return reader, writer


@pytest.fixture
async def raw_client(server: ServerUnderTest) -> RawClient:
    config = server.config
    return RawClient(server, config.ssl_context(await RequestAuthenticator(config, SystemClock()).client_certificate()))


REFUSED = "400 Bad Request"


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        pytest.param(b"F(O /version HTTP/1.1\r\n" + HOST + b"\r\n", REFUSED, id="a method is a token"),
        pytest.param(b"GET /version\r\n" + HOST + b"\r\n", REFUSED, id="a request line has a version"),
        pytest.param(
            b"GET /version HTTP/2.0\r\n" + HOST + b"\r\n",
            "505 HTTP Version Not Supported: unsupported protocol version",
            id="and a version that this connection speaks",
        ),
        pytest.param(b"\r\nGET /version HTTP/1.1\r\n" + HOST + b"\r\n", REFUSED, id="nothing is before it"),
        pytest.param(b"GET /version HTTP/1.1\r\n\r\n", "400 Bad Request: missing required Host header", id="a host is named"),
        pytest.param(b"GET /version HTTP/1.1\r\n" + HOST + HOST + b"\r\n", REFUSED, id="one host"),
        pytest.param(b"GET /version HTTP/1.1\r\nHost: a b\r\n\r\n", "400 Bad Request: malformed Host header", id="that can be one"),
        pytest.param(b"GET version HTTP/1.1\r\n" + HOST + b"\r\n", REFUSED, id="a path is absolute"),
        pytest.param(b"GET /a%zz HTTP/1.1\r\n" + HOST + b"\r\n", REFUSED, id="its escapes are well-formed"),
        pytest.param(b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n", REFUSED, id="it holds no blank"),
        pytest.param(b"GET /a\x01b HTTP/1.1\r\n" + HOST + b"\r\n", REFUSED, id="nor a control"),
        pytest.param(
            b"GET / HTTP/1.1\r\n" + HOST + b"X-A : b\r\n\r\n", "400 Bad Request: invalid header name", id="no blank before the colon"
        ),
        pytest.param(b"GET / HTTP/1.1\r\n" + HOST + b"XA\r\n\r\n", REFUSED, id="a field has a colon"),
        pytest.param(b"GET / HTTP/1.1\r\n" + HOST + b": b\r\n\r\n", REFUSED, id="and a name"),
        pytest.param(b"GET / HTTP/1.1\r\n " + HOST + b"\r\n", REFUSED, id="the first field continues none"),
        pytest.param(b"GET / HTTP/1.1\r\n" + HOST + b"X: a\x00b\r\n\r\n", REFUSED, id="a value holds no zero byte"),
        pytest.param(b"GET / HTTP/1.1\r\n" + HOST + b"X: a\rb\r\n\r\n", REFUSED, id="nor half a line break"),
        pytest.param(POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n", REFUSED, id="two lengths are none"),
        pytest.param(POST + b"Content-Length: 3, 3\r\n\r\n", REFUSED, id="nor is a list"),
        pytest.param(POST + b"Content-Length: +3\r\n\r\n", REFUSED, id="a length is digits"),
        pytest.param(POST + b"Content-Length: \r\n\r\n", REFUSED, id="at least one"),
        pytest.param(POST + b"Content-Length: a\r\nTransfer-Encoding: chunked\r\n\r\n", REFUSED, id="even where chunks overrule it"),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\nTrailer: X, Content-Length\r\n\r\n", REFUSED, id="no trailer says where a body ends"
        ),
        pytest.param(POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "501 Not Implemented", id="of all codings there is one"),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "501 Not Implemented", id="and it is named once"
        ),
        pytest.param(
            b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 1_100_000 + b"\r\n\r\n",
            "431 Request Header Fields Too Large",
            id="a head has an end",
        ),
    ],
)
async def test_a_malformed_request_is_refused_and_the_connection_ends(raw_client: RawClient, sent: bytes, answered: str) -> None:
    text = await raw_client.all(sent)
    body = "Unsupported transfer encoding" if answered.startswith("501") else answered
    assert text == f"HTTP/1.1 {answered}\r\nContent-Type: text/plain; charset=utf-8\r\n{END}\r\n\r\n{body}"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"GET /readyz HTTP/1.2\r\n" + HOST + b"\r\n", 200, id="a later minor version is read as this one"),
        pytest.param(b"GET http://foo/readyz HTTP/1.1\r\n" + HOST + b"\r\n", 200, id="a target may name the host"),
        pytest.param(b"GET /readyz HTTP/1.1\nHost: x\n\n", 200, id="lines may end without a carriage return"),
        pytest.param(b"GET /readyz HTTP/1.1\r\n" + HOST + b"X: \xff\r\n\r\n", 200, id="a value may be no text"),
        pytest.param(b"GET /readyz HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n", 200, id="a field may be folded"),
        pytest.param(b"GET /readyz HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 900_000 + b"\r\n\r\n", 200, id="a field may be long"),
        pytest.param(b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 200, id="the server as a whole has options"),
        pytest.param(b"GET * HTTP/1.1\r\n" + HOST + b"\r\n", 404, id="and nothing else"),
        pytest.param(b"CONNECT foo:80 HTTP/1.1\r\n" + HOST + b"\r\n", 404, id="it is no proxy"),
        pytest.param(b"GET /readyz#a HTTP/1.1\r\n" + HOST + b"\r\n", 404, id="a path has no fragment"),
        pytest.param(b"HEAD /readyz HTTP/1.1\r\n" + HOST + b"\r\n", 200, id="health may be asked for by its head"),
        pytest.param(b"HEAD /api/v1/nodes HTTP/1.1\r\n" + HOST + b"\r\n", 405, id="resources may not"),
        pytest.param(b"TRACE /version HTTP/1.1\r\n" + HOST + b"\r\n", 405, id="nothing is traced"),
        pytest.param(b"FOO /version HTTP/1.1\r\n" + HOST + b"\r\n", 405, id="nor done by an unknown method"),
        pytest.param(b"get /api/v1/nodes HTTP/1.1\r\n" + HOST + b"\r\n", 405, id="methods are in capitals"),
        pytest.param(POST + b"Content-Length: %d\r\n" % len(BODY) * 2 + b"\r\n" + BODY, 201, id="the same length twice is one"),
        pytest.param(CHUNKED + CHUNK, 201, id="a body may come in chunks"),
        pytest.param(POST + b"Content-Length: 3\r\nTransfer-Encoding: Chunked\r\n\r\n" + CHUNK, 201, id="whatever length is named"),
        pytest.param(CHUNKED + b"%x;a=b\r\n" % len(BODY) + BODY + b"\r\n0\r\nX: y\r\n\r\n", 201, id="with extensions and trailers"),
        pytest.param(CHUNKED + CHUNK[:-2] + b"X: y\nZ: y\n\r\n", 201, id="whose lines may end without a carriage return"),
        pytest.param(
            POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY + b"\r\n\n\r", 201, id="line breaks may follow what was posted"
        ),
        pytest.param(POST + b"Content-Length: 3\r\n\r\n" + BODY[:3], 400, id="no more is read than was announced"),
    ],
)
async def test_a_valid_request_is_answered_and_the_connection_stays(raw_client: RawClient, sent: bytes, status: int) -> None:
    if sent.startswith(b"HEAD"):
        sent = sent.replace(b"HTTP/1.1", b"HTTP/1.0")  # a connection that ends shows that nothing follows
        answer = await raw_client.all(sent)
        assert answer.startswith(f"HTTP/1.0 {status} ")
        assert answer.endswith("\r\n\r\n")
        return
    answers = await raw_client.answers(sent + b"GET /livez HTTP/1.1\r\n" + HOST + b"\r\n", 2)
    assert [head.split(" ")[1] for head, _ in answers] == [str(status), "200"]
    assert answers[1][1] == "ok"
    assert "Server:" not in answers[0][0]
    if status == 405:
        assert f'"message":"{NOT_ALLOWED}"' in answers[0][1]


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        pytest.param(b"zz\r\n" + BODY, "invalid byte in chunk length", id="a size is hexadecimal"),
        pytest.param(b"%x\n" % len(BODY) + BODY + b"\n0\n\n", "chunked line ends with bare LF", id="a line ends with both signs"),
        pytest.param(b"3\r\n" + BODY, "malformed chunked encoding", id="a chunk ends where it says"),
        pytest.param(b"%x;\r a\r\n" % len(BODY) + BODY, "invalid CR in chunked line", id="an extension holds no half line break"),
        pytest.param(CHUNK[:-2] + b"X y\r\n\r\n", 'malformed MIME header: missing colon: \\"X y\\"', id="a trailer has a colon"),
        pytest.param(
            CHUNK[:-2] + b"X: " + b"y" * 5000 + b"\r\n\r\n", "http: suspiciously long trailer after chunked body", id="and an end"
        ),
    ],
)
async def test_chunks_that_are_unclear_end_the_connection(raw_client: RawClient, chunks: bytes, message: str) -> None:
    text = await raw_client.all(CHUNKED + chunks)
    assert text.startswith("HTTP/1.1 500 Internal Server Error\r\n")
    assert END in text
    assert text.rstrip().endswith(f'"message":"{message}","code":500}}')


async def test_a_client_that_waits_to_be_asked_for_the_body_is_asked(raw_client: RawClient) -> None:
    sent = POST + b"Expect: 100-Continue\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
    (first, _), (second, _) = await raw_client.answers(sent, 2)
    assert first == "HTTP/1.1 100 Continue\r\n\r\n"
    assert second.startswith("HTTP/1.1 201 Created\r\n")


async def test_other_expectations_fail(raw_client: RawClient) -> None:
    text = await raw_client.all(b"GET /readyz HTTP/1.1\r\n" + HOST + b"Expect: 200-ok\r\n\r\n")
    assert text.startswith("HTTP/1.1 417 Expectation Failed\r\n")
    assert END in text


async def test_an_unread_body_is_skipped_unless_it_is_large(raw_client: RawClient) -> None:
    get = b"GET /readyz HTTP/1.1\r\n" + HOST
    kept = await raw_client.answers(get + b"Content-Length: 3\r\n\r\nabc" + get + b"\r\n", 2)
    assert [body for _, body in kept] == ["ok", "ok"]
    ended = await raw_client.all(get + b"Content-Length: 300000\r\n\r\n" + b"a" * 300_000)
    assert END in ended
    assert ended.endswith("\r\n\r\nok")


async def test_any_field_about_the_connection_may_end_it(raw_client: RawClient) -> None:
    text = await raw_client.all(b"GET /readyz HTTP/1.1\r\n" + HOST + b"Connection: X-A\r\nConnection: X-B, Close\r\n\r\n" + b"GET /livez")
    assert END in text
    assert text.endswith("\r\n\r\nok")


async def test_an_older_client_keeps_the_connection_if_it_asks_to(raw_client: RawClient) -> None:
    ended = await raw_client.all(b"GET /readyz HTTP/1.0\r\n\r\n")
    assert ended.startswith("HTTP/1.0 200 OK\r\n")
    kept = await raw_client.answers(b"GET /readyz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2, 2)
    assert all("Connection: keep-alive" in head for head, _ in kept)
