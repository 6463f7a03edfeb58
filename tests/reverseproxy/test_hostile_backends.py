"""Backends are not trusted: for every response and every address of a backend, the client gets a proper response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.meta.errors import ApiError
from kubeloop.meta.tls import client_tls
from kubeloop.reverseproxy.backend import Backend
from kubeloop.reverseproxy.http import proxy_request
from kubeloop.reverseproxy.stream_translator import V5, _outcome
from kubeloop.reverseproxy.upgrade import proxy_upgrade
from kubeloop.serving.answer import Aborted, Answer, Hijack, StreamingResponse
from kubeloop.serving.request import Request

_OPENINGS = [
    b"",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    b"HTTP/1.1 403 No\r\nContent-Type: text/html\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
]


@asynccontextmanager
async def answering(data: bytes, seen: bytearray | None = None) -> AsyncIterator[int]:
    """Serve fixed bytes to each client; ``seen`` collects the received bytes until the client ends."""
    serving: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            await writer.drain()
            if seen is not None:
                seen.extend(head + await reader.read())
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*serving, return_exceptions=True)
        await server.wait_closed()


async def _read(limit: int) -> bytes:
    return b""


def _request(**headers: str) -> Request:
    return Request("GET", "/api/v1/nodes/n/proxy/x", "", {"Host": "api", **headers}, _read, remote="127.0.0.1")


@given(opening=st.sampled_from(_OPENINGS), rest=st.one_of(st.binary(max_size=60), st.text(alphabet="\r\n:0123456789abc", max_size=40)))
@settings(max_examples=60)
def test_whatever_a_backend_answers_is_answered(opening: bytes, rest: bytes | str) -> None:
    data = opening + (rest if isinstance(rest, bytes) else rest.encode())

    async def ask() -> None:
        async with answering(data) as port, asyncio.timeout(5):
            backend = Backend("127.0.0.1", port, None, "/x")
            for one in (proxy_request(_request(), backend), proxy_upgrade(_request(Connection="Upgrade", Upgrade="x"), backend)):
                try:
                    reply = await one
                except ApiError as refusal:
                    codes.add(refusal.status.code)
                    continue
                if isinstance(reply, Hijack):
                    reply.close()
                elif isinstance(reply, StreamingResponse):
                    try:
                        async for _ in reply.chunks:
                            pass
                    except Aborted:
                        pass
                else:
                    assert isinstance(reply, Answer)

    codes: set[int] = set()
    asyncio.run(ask())
    assert codes <= {500, 503}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)
_STATUSES = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["Success", "Failure", "x", None, 3]),
        "reason": st.sampled_from(["NonZeroExitCode", "x", None, []]),
        "message": _JSON,
        "details": st.one_of(
            _JSON, st.fixed_dictionaries({"causes": st.one_of(_JSON, st.lists(st.just({"reason": "ExitCode"}), max_size=1))})
        ),
    },
)


@given(message=st.one_of(st.binary(max_size=30), _STATUSES), protocol=st.sampled_from([V5, "v2.channel.k8s.io", ""]))
@settings(max_examples=100)
def test_whatever_an_error_stream_says_is_an_outcome(message: bytes | dict[str, Any], protocol: str) -> None:
    import json

    encoded = message if isinstance(message, bytes) else json.dumps(message).encode()
    assert _outcome(encoded, protocol).status in ("Success", "Failure")


@pytest.mark.parametrize(
    ("host", "port"),
    [
        pytest.param("127.0.0.1", 70_000, id="a port that there is not"),
        pytest.param("x" * 300, 1, id="a name that is too long"),
        pytest.param("a..b", 1, id="a name with an empty part"),
        pytest.param(".", 1, id="no name at all"),
        pytest.param("::1%zone", 1, id="an address with a zone"),
    ],
)
@pytest.mark.parametrize("secure", [True, False])
async def test_a_backend_with_an_impossible_address_is_unavailable(host: str, port: int, secure: bool) -> None:
    backend = Backend(host, port, client_tls() if secure else None, "/x")
    with pytest.raises(ApiError) as refused:
        await proxy_request(_request(), backend)
    assert refused.value.status.message.startswith("error trying to reach service: ")


async def test_bytes_behind_an_upgrade_request_reach_the_backend_only_after_it_agreed() -> None:
    """Otherwise a client could send requests over the server's connection (as in CVE-2018-1002105)."""
    seen = bytearray()
    async with answering(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", seen) as port:
        request = _request(Connection="Upgrade", Upgrade="x", **{"Content-Length": "50", "Transfer-Encoding": "chunked"})
        reply = await proxy_upgrade(request, Backend("127.0.0.1", port, None, "/x"))
        assert isinstance(reply, StreamingResponse)
        assert reply.status == 403
    assert seen.endswith(b"\r\n\r\n")
    assert b"content-length" not in seen.lower()
    assert b"transfer-encoding" not in seen.lower()
