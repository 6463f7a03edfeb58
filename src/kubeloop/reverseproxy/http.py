"""Proxying of plain HTTP requests to a backend. Headers, redirects and links in responses are changed to lead through the proxy.

Source: RFC 9110 section 7.6 (message forwarding); k8s.io/apimachinery pkg/util/proxy (upgradeaware.go, transport.go).
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from urllib.parse import quote

from kubeloop.endpoints import api_errors
from kubeloop.http1.client_connection import ClientConnection
from kubeloop.http1.client_heads import chunked_body
from kubeloop.http1.headers import Headers
from kubeloop.reverseproxy.backend import BACKEND_ERRORS, PATH_SAFE, Backend, complete_response, error_text, request_head
from kubeloop.reverseproxy.html_links import Links
from kubeloop.reverseproxy.upgrade import Rewrite, forwarded_headers, header_lines, unchanged
from kubeloop.serving.answer import Aborted, Answer, Reply, StreamingResponse
from kubeloop.serving.request import Request

#: Headers of one connection (RFC 9110, section 7.6.1), and headers that Go's proxy treats alike.
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
#: Headers by which a backend lets pages of other origins read it. They must not open this server to those pages.
_CORS = frozenset(f"access-control-allow-{name}" for name in ("credentials", "headers", "methods", "origin"))
_REDIRECTED = b"the backend attempted to redirect this request, which is not permitted"
#: Maximum bytes of a page whose links are rewritten; larger pages pass unchanged.
_PAGE = 8 << 20
#: Maximum characters of a page that the event loop rewrites itself; a thread rewrites longer pages.
_AT_ONCE = 1 << 16


async def proxy_request(
    request: Request,
    backend: Backend,
    rewrite: Rewrite = unchanged,
    *,
    redirects: bool = True,
    credentials: bool = False,
    same_paths: bool = False,
) -> Reply:
    """Proxy a request. The returned response streams the backend's body.

    Args:
        request: The client's request.
        backend: The destination.
        rewrite: Changes the headers that the backend gets.
        redirects: Whether the backend may redirect clients; if not, they get 502 (CVE-2022-3172).
        credentials: Forward the client's credentials, see ``forwarded_headers``.
        same_paths: The backend serves the path of the request, as an API server behind a proxy does. Links, redirects and CORS headers of
            the response then stay unchanged. Otherwise links and redirects are changed to lead through the proxy.

    Returns:
        The response. Its ``chunks`` raise ``Aborted`` if the connection to the backend breaks.

    Raises:
        ServiceUnavailable: The backend sent no response.
    """
    if not same_paths and not backend.path and request.method in ("GET", "HEAD"):
        # Without the trailing slash, relative links on the page would lose the last segment of the path (kubernetes issue 4958).
        query = f"?{backend.query}" if backend.query else ""
        location = quote(request.path, safe=PATH_SAFE, errors="surrogateescape") + "/" + query
        return Answer(301, body=b"", headers=[("Location", location)])
    links = None if same_paths else Links.through(request.path, backend)
    headers = _request_headers(request, credentials=credentials)
    if links is not None:
        headers.append(("X-Forwarded-Uri", links.uri))
    wire = None
    try:
        wire = await backend.connect()
        head = request_head(request.method, backend.target, rewrite(headers))
        status, received = await wire.exchange(request.method, head, None, more=_body(request))
        if not redirects and 300 <= status <= 399 and received.get("Location", ""):
            wire.abort()
            return Answer(502, body=_REDIRECTED, content_type="text/plain; charset=utf-8", verbatim=True)
        return await _response(wire, status, received, links, request)
    except BACKEND_ERRORS as error:
        if wire is not None:
            wire.abort()
        text = f"error trying to reach service: {error_text(error, backend)}"
        raise api_errors.refusal(503, "ServiceUnavailable", text) from None
    except BaseException:
        if wire is not None:
            wire.abort()
        raise


def _request_headers(request: Request, *, credentials: bool) -> list[tuple[str, str]]:
    named = {one.strip().lower() for one in request.header("Connection").split(",") if one.strip()}
    chunked = _is_chunked(request)
    without = HOP_BY_HOP | named | ({"content-length"} if chunked else set())
    headers = forwarded_headers(request, without=without, credentials=credentials)
    if chunked:
        headers.append(("Transfer-Encoding", "chunked"))
    elif request.method in ("POST", "PUT", "PATCH") and not request.header("Content-Length"):
        headers.append(("Content-Length", "0"))
    return headers


def _is_chunked(request: Request) -> bool:
    return bool(request.header("Transfer-Encoding").strip())


def _body(request: Request) -> AsyncIterator[bytes] | None:
    if request.body is None or not (_is_chunked(request) or request.header("Content-Length") not in ("", "0")):
        return None
    return chunked_body(request.body()) if _is_chunked(request) else request.body()


async def _response(wire: ClientConnection, status: int, headers: Headers, links: Links | None, request: Request) -> Reply:
    left_out = HOP_BY_HOP if links is None else HOP_BY_HOP | _CORS
    passed = [(name, value) for name, value in header_lines(headers) if name.lower() not in left_out]
    location = headers.get("Location", "")
    if location and links is not None:
        passed = [(name, links.rewritten(value, request.header("Host")) if name == "Location" else value) for name, value in passed]
    if request.method == "HEAD" or status in (204, 304):
        wire.abort()
        return _without_body(status, passed)
    if links is not None and not location and headers.get("Content-Type", "").partition(";")[0].strip() == "text/html":
        return await _page(wire, status, headers, passed, links, request)
    return _stream(wire, status, passed)


def _without_body(status: int, headers: list[tuple[str, str]]) -> Answer:
    """Return a response without a body, for HEAD requests and for statuses that do not allow a body."""
    content_type = next((value for name, value in headers if name == "Content-Type"), "")
    rest = [(name, value) for name, value in headers if name != "Content-Type"]
    return Answer(status, body=b"", content_type=content_type, headers=rest)


def _stream(wire: ClientConnection, status: int, headers: list[tuple[str, str]], begun: bytes = b"") -> StreamingResponse:
    content_type = next((value for name, value in headers if name == "Content-Type"), "")
    rest = [(name, value) for name, value in headers if name != "Content-Type"]
    return StreamingResponse(_chunks(wire, begun), content_type, rest, status)


async def _page(
    wire: ClientConnection, status: int, headers: Headers, passed: list[tuple[str, str]], links: Links, request: Request
) -> Reply:
    """Return an HTML page whose links lead through this server.

    A page that is too large or has an unknown content encoding is streamed unchanged.
    """
    coding = headers.get("Content-Encoding", "").strip().lower()
    if coding not in ("", "gzip"):
        return _stream(wire, status, passed)
    body = bytearray()
    while part := await wire.chunk():
        body += part
        if len(body) > _PAGE:
            return _stream(wire, status, passed, bytes(body))
    wire.abort()
    page = bytes(body)
    if coding:
        page = _unpacked(page)
    text, host = page.decode("utf-8", "surrogateescape"), request.header("Host")
    rewritten = await asyncio.to_thread(links.page, text, host) if len(text) > _AT_ONCE else links.page(text, host)
    page = rewritten.encode("utf-8", "surrogateescape")
    if coding:
        page = gzip.compress(page)
    return complete_response(status, page, headers.get("Content-Type", ""), passed)


def _unpacked(page: bytes) -> bytes:
    """Decompress a gzip page.

    Raises:
        ApiError: 500 without a reason, because the page is not valid gzip or is larger than ``_PAGE``.
    """
    unpacker = zlib.decompressobj(31)
    try:
        plain = unpacker.decompress(page, _PAGE)
    except zlib.error as error:
        raise api_errors.internal(f"gzip: {error}") from None
    if unpacker.unconsumed_tail:
        raise api_errors.internal("gzip: the page is too large to be rewritten")
    return plain


async def _chunks(wire: ClientConnection, begun: bytes) -> AsyncIterator[bytes]:
    """Yield the body of a response, beginning with ``begun``, the part that was already read.

    Raises Aborted if the connection to the backend breaks, so that clients do not mistake a part of the body for the whole.
    """
    try:
        if begun:
            yield begun
        while True:
            try:
                part = await wire.chunk()
            except BACKEND_ERRORS as error:
                raise Aborted(str(error)) from None
            if not part:
                return
            yield part
    finally:
        wire.abort()
