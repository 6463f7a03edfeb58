"""The headers of a proxied request and of its response, for backends of a ``/proxy`` subresource and for an API server behind a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kubeloop.endpoints.access import User
from kubeloop.reverseproxy.backend import Backend
from kubeloop.reverseproxy.http import proxy_request
from kubeloop.reverseproxy.identity import header_rewriter
from kubeloop.reverseproxy.upgrade import forwarded_headers
from kubeloop.serving.answer import StreamingResponse
from kubeloop.serving.request import Request

PAGE = b'<a href="/x">x</a>'
HEADERS = {"Content-Type": "text/html", "Access-Control-Allow-Origin": "https://ui", "Content-Length": str(len(PAGE))}
CREDENTIALS = {"Authorization": "Bearer t", "Impersonate-User": "ann", "Impersonate-Extra-Scopes": "s", "X-Remote-User": "bob"}


async def _read(limit: int) -> bytes:
    return b""


def request(**headers: str) -> Request:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request("GET", "/prefix/page", "", {"Host": "api:6443", **sent}, _read, remote="192.0.2.1")


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode() + PAGE)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("credentials", "expected"),
    [
        pytest.param(False, {"Accept"}, id="a backend does not get the client's credentials"),
        pytest.param(True, {"Accept", *CREDENTIALS}, id="a backend that authenticates clients itself gets the client's credentials"),
    ],
)
def test_credentials(credentials: bool, expected: set[str]) -> None:
    sent = request(**{name.replace("-", "_"): value for name, value in CREDENTIALS.items()}, Accept="a/b")
    assert {name for name, _ in forwarded_headers(sent, credentials=credentials)} == expected | {"Host", "X-Forwarded-For"}


@pytest.mark.parametrize(
    ("same_paths", "page", "origins"),
    [
        pytest.param(False, b'<a href="/prefix/x">x</a>', [], id="links of another server's page lead through the proxy"),
        pytest.param(True, PAGE, ["https://ui"], id="a response of a server with the same paths stays unchanged"),
    ],
)
async def test_response(port: int, same_paths: bool, page: bytes, origins: list[str]) -> None:
    reply = await proxy_request(request(), Backend("127.0.0.1", port, None, "/page"), same_paths=same_paths)
    assert isinstance(reply, StreamingResponse)
    assert b"".join([chunk async for chunk in reply.chunks]) == page
    assert [value for name, value in reply.headers if name == "Access-Control-Allow-Origin"] == origins


def test_a_proxy_names_its_user_and_forwards_no_other_claim() -> None:
    rewrite = header_rewriter(User("ann\r\nX-Remote-Group: root", ("dev",), "7", {"a b": ("c",)}), Backend("192.0.2.7", 443, None), "id-1")
    lines = rewrite([("Host", "api"), ("X-Remote-User", "root"), ("Audit-Id", "forged"), ("Accept", "a/b")])
    assert lines == [
        ("Host", "192.0.2.7:443"),
        ("Accept", "a/b"),
        ("Audit-Id", "id-1"),
        ("X-Remote-User", "ann  X-Remote-Group: root"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Group", "dev"),
        ("X-Remote-Extra-a%20b", "c"),
    ]
