"""A plain HTTP request passed on to a backend, and its answer brought back: headers, redirects and links so that they lead through here.

Source: RFC 9110 section 7.6 (message forwarding); k8s.io/apimachinery pkg/util/proxy (upgradeaware.go, transport.go).
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from urllib.parse import quote

from kubeloop.apiserver import refusals
from kubeloop.apiserver.answers import Answer, Frames, Reply
from kubeloop.apiserver.kubelet.backends import FAULTS, SAFE, Place, dial_fault, request_head, whole
from kubeloop.apiserver.kubelet.links import Links
from kubeloop.apiserver.kubelet.upgrading import Rewrite, forwarded_headers, pairs, unchanged
from kubeloop.serving.answer import BrokenOff
from kubeloop.serving.request import Request
from kubeloop.transport.headers import Headers
from kubeloop.transport.http1 import Wire

#: RFC 9110, section 7.6.1, and those that Go's proxy takes for such.
_HOP_BY_HOP = frozenset(
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
#: Answers of a backend that say who may read them from elsewhere are not this server's own.
_CORS = frozenset(f"access-control-allow-{name}" for name in ("credentials", "headers", "methods", "origin"))
_REDIRECTED = b"the backend attempted to redirect this request, which is not permitted"
#: Bytes of a page whose links are rewritten; larger ones go through as they are.
_PAGE = 8 << 20
#: Characters of a page that are rewritten at once; for more of them the event loop does not wait.
_AT_ONCE = 1 << 16


async def reverse(request: Request, place: Place, rewrite: Rewrite = unchanged, *, redirects: bool = True) -> Reply:
    """The backend's answer, as it comes. ``rewrite`` has the last word on the headers that go to it.

    ``redirects`` False: where the backend sends clients elsewhere, 502 is answered instead (CVE-2022-3172).

    Raises:
        ServiceUnavailable: there is none.
    """
    if not place.path and request.method in ("GET", "HEAD"):
        # Relative links on the page would miss the last part of the path otherwise (kubernetes issue 4958).
        query = f"?{place.query}" if place.query else ""
        return Answer(301, body=b"", headers=[("Location", quote(request.path, safe=SAFE, errors="surrogateescape") + "/" + query)])
    links = Links.through(request.path, place)
    wire = None
    try:
        wire = await place.connect()
        head = request_head(request.method, place.target, rewrite([*_headers(request), ("X-Forwarded-Uri", links.uri)]))
        status, headers = await wire.exchange(request.method, head, None, more=_body(request))
        if not redirects and 300 <= status <= 399 and headers.get("Location", ""):
            wire.abort()
            return Answer(502, body=_REDIRECTED, content_type="text/plain; charset=utf-8", verbatim=True)
        return await _answer(wire, status, headers, links, request)
    except FAULTS as fault:
        if wire is not None:
            wire.abort()
        text = f"error trying to reach service: {dial_fault(fault, place)}"
        raise refusals.refusal(503, "ServiceUnavailable", text) from None
    except BaseException:
        if wire is not None:
            wire.abort()
        raise


def _headers(request: Request) -> list[tuple[str, str]]:
    named = {one.strip().lower() for one in request.header("Connection").split(",") if one.strip()}
    chunked = _is_chunked(request)
    found = forwarded_headers(request, without=_HOP_BY_HOP | named | ({"content-length"} if chunked else set()))
    if chunked:
        found.append(("Transfer-Encoding", "chunked"))
    elif request.method in ("POST", "PUT", "PATCH") and not request.header("Content-Length"):
        found.append(("Content-Length", "0"))
    return found


def _is_chunked(request: Request) -> bool:
    return bool(request.header("Transfer-Encoding").strip())


def _body(request: Request) -> AsyncIterator[bytes] | None:
    if request.body is None or not (_is_chunked(request) or request.header("Content-Length") not in ("", "0")):
        return None
    return _framed(request.body()) if _is_chunked(request) else request.body()


async def _framed(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """As chunks (RFC 9112, section 7.1)."""
    async for piece in pieces:
        if piece:
            yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


async def _answer(wire: Wire, status: int, headers: Headers, links: Links, request: Request) -> Reply:
    passed = [(name, value) for name, value in pairs(headers) if name.lower() not in _HOP_BY_HOP | _CORS]
    location = headers.get("Location", "")
    if location:
        passed = [(name, links.rewritten(value, request.header("Host")) if name == "Location" else value) for name, value in passed]
    if request.method == "HEAD" or status in (204, 304):
        wire.abort()
        return _bare(status, passed)
    if not location and headers.get("Content-Type", "").partition(";")[0].strip() == "text/html":
        return await _page(wire, status, headers, passed, links, request)
    return _stream(wire, status, passed)


def _bare(status: int, headers: list[tuple[str, str]]) -> Answer:
    """An answer without a body, as its status or the request's method want it."""
    content_type = next((value for name, value in headers if name == "Content-Type"), "")
    rest = [(name, value) for name, value in headers if name != "Content-Type"]
    return Answer(status, body=b"", content_type=content_type, headers=rest)


def _stream(wire: Wire, status: int, headers: list[tuple[str, str]], begun: bytes = b"") -> Frames:
    content_type = next((value for name, value in headers if name == "Content-Type"), "")
    rest = [(name, value) for name, value in headers if name != "Content-Type"]
    return Frames(_chunks(wire, begun), content_type, rest, status)


async def _page(wire: Wire, status: int, headers: Headers, passed: list[tuple[str, str]], links: Links, request: Request) -> Reply:
    """HTML whose links lead through this server."""
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
    return whole(status, page, headers.get("Content-Type", ""), passed)


def _unpacked(page: bytes) -> bytes:
    """Raises ApiError, 500 without a reason: it is not what it says, or grows beyond all measure."""
    unpacker = zlib.decompressobj(31)
    try:
        plain = unpacker.decompress(page, _PAGE)
    except zlib.error as fault:
        raise refusals.internal(f"gzip: {fault}") from None
    if unpacker.unconsumed_tail:
        raise refusals.internal("gzip: the page is too large to be rewritten")
    return plain


async def _chunks(wire: Wire, begun: bytes) -> AsyncIterator[bytes]:
    """The body. Raises BrokenOff when the backend breaks off, so that nobody takes what came for the whole."""
    try:
        if begun:
            yield begun
        while True:
            try:
                part = await wire.chunk()
            except FAULTS as fault:
                raise BrokenOff(str(fault)) from None
            if not part:
                return
            yield part
    finally:
        wire.abort()
