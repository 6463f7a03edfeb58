"""A plain HTTP request passed on to a backend, and its answer brought back: headers, redirects and links so that they lead through here.

Source: RFC 9110 section 7.6 (message forwarding); k8s.io/apimachinery pkg/util/proxy (upgradeaware.go, transport.go).
"""

from __future__ import annotations

import asyncio
import gzip
import html
import posixpath
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kubeloop.apiserver import api_errors
from kubeloop.apiserver.answers import Answer, Reply, StreamingResponse
from kubeloop.apiserver.kubelet.backends import FAULTS, SAFE, Place, dial_fault, request_head, whole
from kubeloop.apiserver.kubelet.upgrading import Rewrite, forwarded_headers, pairs, unchanged
from kubeloop.http1.client_connection import ClientConnection
from kubeloop.http1.headers import Headers
from kubeloop.serving.answer import Aborted
from kubeloop.serving.request import Request

# The start tags of an HTML page, by position, in time that grows with the page and no faster, whatever is in it.
#
# The standard library's parser takes quadratic time on pages made for it, and raises on others; a pod's pages are a stranger's. Source:
# HTML Living Standard, section 13.2.5 (tokenization), as far as start tags need it.


_NAME = re.compile(r"[^\s/>]+")
_BETWEEN = re.compile(r"[\s/]*")
_ATTRIBUTE = re.compile(r"=?[^\s/>=]*")
_EQUALS = re.compile(r"\s*=\s*")
_UNQUOTED = re.compile(r"[^\s>]*")
#: Elements whose content is text up to their end tag.
_RAW = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp")
}


@dataclass(frozen=True, slots=True)
class StartTag:
    """``name`` and attributes' names are in lower case, values unescaped. ``closed``: it ends in a slash."""

    start: int
    end: int
    name: str
    attributes: list[tuple[str, str]]
    closed: bool


def start_tags(text: str) -> Iterator[StartTag]:
    """In order. What is not ended (a tag, a comment, a quote) ends the search, so that nothing is looked through twice."""
    at = 0
    while (at := text.find("<", at)) >= 0:
        after = text[at + 1 : at + 2]
        if text.startswith("<!--", at):
            end = text.find("-->", at + 4)
            at = end + 3
        elif after in ("!", "?", "/"):
            end = text.find(">", at)
            at = end + 1
        elif after.isascii() and after.isalpha():
            tag = _tag(text, at)
            if tag is None:
                return
            yield tag
            at = end = tag.end
            if tag.name == "plaintext":
                return
            if tag.name in _RAW and not tag.closed:
                ending = _RAW[tag.name].search(text, at)
                at = end = ending.start() if ending else -1
        else:
            at = end = at + 1
        if end < 0:
            return


def _tag(text: str, start: int) -> StartTag | None:
    """None: it does not end."""
    named = _NAME.match(text, start + 1)
    assert named is not None
    attributes: list[tuple[str, str]] = []
    at = named.end()
    while True:
        gap = _BETWEEN.match(text, at)
        assert gap is not None
        at = gap.end()
        if at >= len(text):
            return None
        if text[at] == ">":
            return StartTag(start, at + 1, named[0].lower(), attributes, closed=text[at - 1] == "/")
        attribute = _ATTRIBUTE.match(text, at)
        assert attribute is not None
        at = attribute.end()
        value, ended = "", at
        equals = _EQUALS.match(text, at)
        if equals is not None:
            found = _value(text, equals.end())
            if found is None:
                return None
            value, ended = found
        attributes.append((attribute[0].lower(), html.unescape(value)))
        at = ended


def _value(text: str, at: int) -> tuple[str, int] | None:
    """The value and where it ends; None: its quote does not end."""
    quote = text[at : at + 1]
    if quote in ('"', "'"):
        end = text.find(quote, at + 1)
        return (text[at + 1 : end], end + 1) if end >= 0 else None
    plain = _UNQUOTED.match(text, at)
    assert plain is not None
    return plain[0], plain.end()


# Links of a page that was fetched through the server: those to the backend's own paths are made to lead through the server again.
#
# Source: k8s.io/apimachinery pkg/util/proxy/transport.go; attributes with URLs: HTML 4 index of attributes.


_ATTRIBUTES: dict[str, frozenset[str]] = {
    tag: frozenset(names.split())
    for tag, names in {
        "a": "href",
        "applet": "codebase",
        "area": "href",
        "audio": "src",
        "base": "href",
        "blockquote": "cite",
        "body": "background",
        "button": "formaction",
        "command": "icon",
        "del": "cite",
        "embed": "src",
        "form": "action",
        "frame": "longdesc src",
        "head": "profile",
        "html": "manifest",
        "iframe": "longdesc src",
        "img": "longdesc src usemap",
        "input": "src usemap formaction",
        "ins": "cite",
        "link": "href",
        "object": "classid codebase data usemap",
        "q": "cite",
        "script": "src",
        "source": "src",
        "video": "poster src",
    }.items()
}


@dataclass(frozen=True, slots=True)
class Links:
    """``prefix`` is the path here that stands for the backend's root; ``uri`` the path here that was asked for, in canonical form."""

    prefix: str
    uri: str
    authority: str

    @classmethod
    def through(cls, path: str, place: Place) -> Links:
        """For a request of ``path`` (decoded) that was sent to ``place``."""
        suffix = unquote(place.path)
        if path.endswith("/") and not suffix.endswith("/"):
            suffix += "/"
        prefix = path.removesuffix(suffix)
        uri = "/" + posixpath.normpath(f"{prefix}/{place.path}").lstrip("/")  # two slashes would stay two
        return cls(prefix, f"{uri}/" if place.path.endswith("/") and uri != "/" else uri, place.authority)

    def rewritten(self, link: str, host: str) -> str:
        """``link`` as a client must follow it; ``host`` is how the client calls this server."""
        try:
            parts = urlsplit(link)
        except ValueError:
            return link
        elsewhere = parts.netloc not in ("", self.authority, host)
        if elsewhere or not parts.path.startswith("/"):
            return link
        path = unquote(parts.path)
        if not path.startswith(self.prefix):
            slash = path.endswith("/")
            path = "/" + posixpath.normpath(f"{self.prefix}/{path}").lstrip("/")
            path += "/" if slash and not path.endswith("/") else ""
        return urlunsplit(("", "", quote(path, safe=SAFE, errors="surrogateescape"), parts.query, parts.fragment))

    def page(self, text: str, host: str) -> str:
        """A page with all its links rewritten; everything else stays as it is."""
        parts: list[str] = []
        copied = 0
        for tag in start_tags(text):
            names = _ATTRIBUTES.get(tag.name)
            if names is None or not any(name in names for name, _ in tag.attributes):
                continue
            words = [tag.name]
            for name, value in tag.attributes:
                written = self.rewritten(value, host) if name in names else value
                words.append(f'{name}="{html.escape(written)}"')
            parts += [text[copied : tag.start], "<", " ".join(words), "/>" if tag.closed else ">"]
            copied = tag.end
        return "".join([*parts, text[copied:]])


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
        raise api_errors.refusal(503, "ServiceUnavailable", text) from None
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


async def _answer(wire: ClientConnection, status: int, headers: Headers, links: Links, request: Request) -> Reply:
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


def _stream(wire: ClientConnection, status: int, headers: list[tuple[str, str]], begun: bytes = b"") -> StreamingResponse:
    content_type = next((value for name, value in headers if name == "Content-Type"), "")
    rest = [(name, value) for name, value in headers if name != "Content-Type"]
    return StreamingResponse(_chunks(wire, begun), content_type, rest, status)


async def _page(
    wire: ClientConnection, status: int, headers: Headers, passed: list[tuple[str, str]], links: Links, request: Request
) -> Reply:
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
        raise api_errors.internal(f"gzip: {fault}") from None
    if unpacker.unconsumed_tail:
        raise api_errors.internal("gzip: the page is too large to be rewritten")
    return plain


async def _chunks(wire: ClientConnection, begun: bytes) -> AsyncIterator[bytes]:
    """The body. Raises Aborted when the backend breaks off, so that nobody takes what came for the whole."""
    try:
        if begun:
            yield begun
        while True:
            try:
                part = await wire.chunk()
            except FAULTS as fault:
                raise Aborted(str(fault)) from None
            if not part:
                return
            yield part
    finally:
        wire.abort()
