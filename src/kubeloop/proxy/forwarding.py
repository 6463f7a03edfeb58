"""Requests that pass through the proxy unchanged: bytes in both directions, streamed with back-pressure, upgrades included.

Source: RFC 9110 section 7.6 (message forwarding); Kubernetes documentation, "User impersonation".
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Protocol
from urllib.parse import quote

from kubeloop.endpoints import api_errors
from kubeloop.http1.headers import Headers
from kubeloop.meta.errors import TransportError
from kubeloop.proxy.identity import ClientIdentity
from kubeloop.proxy.upstream import MAX_OBJECT, HeaderLines, Upstream, bad_gateway, unreachable
from kubeloop.reverseproxy.backend import PATH_SAFE
from kubeloop.reverseproxy.http import HOP_BY_HOP
from kubeloop.reverseproxy.upgrade import forwarded_headers, header_lines, is_upgrade, relay
from kubeloop.serving.answer import Aborted, Answer, FrameWriter, Hijack, Reply, StreamingResponse
from kubeloop.serving.request import Request
from kubeloop.transport.connection import PooledAnswer
from kubeloop.transport.round_tripper import OutgoingRequest

#: Maximum bytes of a body that is read whole before it is passed on: one write costs less than a stream.
_SMALL: Final = 64 << 10
#: Maximum bytes of a request body that is read whole; larger ones are streamed.
_BODY: Final = 1 << 20
#: Headers of the request's framing, which belong to one connection.
_FRAMING: Final = HOP_BY_HOP | {"content-length", "host", "expect"}
#: Begins of headers by which an API server gets to know a user; only the proxy sends them.
_IDENTITY: Final = ("impersonate-", "x-remote-")
#: Headers of a response that the proxy's own connection has.
_NOT_PASSED: Final = HOP_BY_HOP | {"date"}


def path_of(request: Request) -> str:
    """Return the path of a request, percent-encoded as Go encodes paths."""
    return quote(request.path, safe=PATH_SAFE, errors="surrogateescape")


def target_of(request: Request) -> str:
    """Return path and query of a request, percent-encoded."""
    path = path_of(request)
    return f"{path}?{request.query_string}" if request.query_string else path


def upstream_headers(request: Request, caller: ClientIdentity, *, without: frozenset[str] = frozenset()) -> HeaderLines:
    """Return a client's headers for the API server: without those of the connection, and with the identity that the proxy found.

    Args:
        request: The client's request.
        caller: The client.
        without: Names, in lower case, of further headers to leave out.
    """
    left_out = _FRAMING | without
    if "Connection" in request.headers:
        connection = ",".join(value for name, value in request.headers.items() if name.lower() == "connection")
        left_out |= {name.strip().lower() for name in connection.split(",") if name.strip()}
    # The first is Host, which the connection pool sets.
    forwarded = [pair for pair in forwarded_headers(request, without=left_out)[1:] if not pair[0].lower().startswith(_IDENTITY)]
    return [*forwarded, *caller.headers]


async def forward(upstream: Upstream, request: Request, caller: ClientIdentity, *, document: bool = False) -> Reply:
    """Forward a request, and return the API server's response unchanged.

    Args:
        upstream: The API server.
        request: The client's request.
        caller: The client.
        document: The response is one object or list, not a stream: see ``passed``.

    Raises:
        ApiError: The API server sent no response.
    """
    if is_upgrade(request):
        return await _upgrade(upstream, request, caller)
    body, more = await _body(request)
    sent = OutgoingRequest(request.method, target_of(request), upstream_headers(request, caller), body, more=more)
    answer = await upstream.send(sent, as_proxy=caller.as_proxy)
    return await passed(answer, request, document=document)


async def passed(
    answer: PooledAnswer,
    request: Request,
    watch: PassedBody | None = None,
    *,
    document: bool = False,
) -> Reply:
    """Return an upstream response for the client, unchanged.

    Args:
        answer: The API server's response, with an unread body.
        request: The client's request.
        watch: The body, if it is that of a watch.
        document: The body is one object or list, which ends by itself. A small one is sent with one write, although a kube-apiserver
            does not name its length.

    Raises:
        ApiError: The body broke off before any of it was sent.
    """
    headers = passed_headers(answer.headers)
    length = answer.headers.get("Content-Length", "")
    if length and "Transfer-Encoding" in answer.headers:
        length, headers = "", headers_without_length(headers)  # the coding decides where the body ends (RFC 9112, section 6.3)
    if length and not length.isdecimal():
        answer.close()
        raise bad_gateway("the API server sent a malformed Content-Length")
    if answer.status in (204, 304):
        answer.close()
        return Answer(answer.status, body=b"", headers=headers_without_length(headers), verbatim=True)
    if request.method == "HEAD":
        answer.close()
        return StreamingResponse(_nothing(), "", headers, answer.status)  # with the length of the body that is left out
    first = b""
    if watch is None and (_is_small(length, _SMALL) if length else document):
        first, complete = await _beginning(answer)
        if complete:
            return Answer(answer.status, body=first, headers=headers_without_length(headers), verbatim=True)
    body = watch if watch is not None else _UpstreamBody(answer, first)
    return StreamingResponse(body.pull(), "", headers, answer.status, answer.close, body.push)


def passed_headers(received: Headers) -> HeaderLines:
    """Return the API server's headers for a client, without those of the connection."""
    return header_lines(received, without=_NOT_PASSED)


def headers_without_length(headers: HeaderLines) -> HeaderLines:
    return [(name, value) for name, value in headers if name != "Content-Length"]


async def _beginning(answer: PooledAnswer) -> tuple[bytes, bool]:
    """Return the beginning of a body, and whether it is the whole body, after which the response is closed."""
    parts, size = [], 0
    try:
        while part := await answer.chunk():
            parts.append(part)
            size += len(part)
            if size > _SMALL:
                return b"".join(parts), False
    except TransportError as error:
        answer.close()
        raise unreachable(error) from error
    except BaseException:
        answer.close()
        raise
    answer.close()
    return parts[0] if len(parts) == 1 else b"".join(parts), True


class PassedBody(Protocol):
    """A body that a client gets as it arrives. It is closed at its end."""

    def pull(self) -> AsyncIterator[bytes]:
        """Yield the body."""

    async def push(self, client: FrameWriter) -> None:
        """Write the body to a connection."""


class _UpstreamBody:
    """A body of the API server. ``first`` is the part of it that was read already."""

    def __init__(self, answer: PooledAnswer, first: bytes) -> None:
        self._answer = answer
        self._first = first

    async def pull(self) -> AsyncIterator[bytes]:
        try:
            if self._first:
                yield self._first
            while part := await self._answer.chunk():
                yield part
        except TransportError as error:
            raise Aborted(str(error)) from None  # a client must not take a part for the whole
        finally:
            self._answer.close()

    async def push(self, client: FrameWriter) -> None:
        try:
            if self._first:
                await client.write(client.encode(self._first))
            await self._answer.pass_on(lambda part: client.push(client.encode(part)), client.drained)
        except TransportError as error:
            raise Aborted(str(error)) from None
        finally:
            self._answer.close()


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield


async def _body(request: Request) -> tuple[bytes | None, AsyncIterator[bytes] | None]:
    """Return a small body of known length, or a stream of any other body."""
    length = request.header("Content-Length")
    if request.header("Transfer-Encoding") or (length and not _is_small(length, _BODY)):
        if request.body is None:
            return await request.read_body(MAX_OBJECT), None
        return None, request.body()
    return (await request.read_body(_BODY) or None) if length not in ("", "0") else None, None


def _is_small(length: str, limit: int) -> bool:
    return length.isdecimal() and len(length) < 8 and int(length) <= limit


async def _upgrade(upstream: Upstream, request: Request, caller: ClientIdentity) -> Reply:
    """Forward a request for another protocol, and tunnel it: exec, attach, port-forward, WebSockets.

    Raises:
        ApiError: 400: the request names no protocol. 502 to 504: the API server sent no response.
    """
    protocol = request.header("Upgrade")
    if not protocol:
        raise api_errors.bad_request("the request has Connection: Upgrade, but no header Upgrade that names a protocol")
    # The forwarded request has no body: the API server reads the client's bytes only as the protocol that it agreed to.
    headers = upstream_headers(request, caller)
    answer = await upstream.send(
        OutgoingRequest(request.method, target_of(request), headers, None, upgrade=protocol), as_proxy=caller.as_proxy
    )
    if answer.status != 101:
        return await passed(answer, request)
    return Hijack(lambda client: relay(client, answer), header_lines(answer.headers), close=answer.close)
