"""The heads of messages for servers: parsing of requests, encoding of responses."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import unquote

from multidict import CIMultiDict

from kubeloop.http1.headers import FORBIDDEN_IN_VALUE, TOKEN, list_contains, usual_fields

# Parses a request's head: its line and its fields, including the framing of the body.
#
# Requests are accepted and rejected as by Go's net/http (readRequest, textproto and net/url), with the same messages, so that a client that
# works here works with a kube-apiserver.


#: Maximum bytes of a head: Go's DefaultMaxHeaderBytes and its tolerance.
LIMIT = (1 << 20) + 4096

#: Blanks within a name are reported after other faults.
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z ]+")
_VERSION = re.compile(r"HTTP/([0-9])\.([0-9])")
_TARGET_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_NO_HOST = re.compile(r"""[\x00-\x20"#<>?\\^`{|}\x7f]""")
_DIGITS = re.compile(r"[0-9]{1,18}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
#: Names of fields up to this length are cached.
_LONGEST_KNOWN = 64
#: Fields that are forbidden in trailers (RFC 9110, section 6.5.1).
_FRAMING = ("transfer-encoding", "content-length", "trailer")


class RequestRefused(Exception):
    """The request is malformed, and the connection ends. ``status`` is the text of the status line, ``text`` the body of the response."""

    def __init__(self, status: str = "400 Bad Request", text: str | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.text = status if text is None else text

    def answer(self) -> bytes:
        """Return the encoded response."""
        return f"HTTP/1.1 {self.status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{self.text}".encode()


TOO_LARGE = "431 Request Header Fields Too Large"


@dataclass(slots=True)
class RequestHead:
    """The head of a request. ``path`` is decoded. ``length`` is None if the body is chunked. ``minor`` is the x of HTTP/1.x."""

    method: str
    path: str
    query: str
    headers: CIMultiDict[str]
    minor: int
    length: int | None
    keep: bool

    @property
    def expects_continue(self) -> bool:
        """Whether the client sends its body only after 100 Continue (RFC 9110, section 10.1.1)."""
        return list_contains(self.headers.get("Expect", ""), "100-continue")

    @property
    def has_unknown_expectation(self) -> bool:
        return bool(self.headers.get("Expect")) and not self.expects_continue

    @property
    def is_asterisk_form(self) -> bool:
        """Whether the request is ``OPTIONS *``, which concerns the server and not a resource."""
        return self.method == "OPTIONS" and self.path == "*"


def end_of_head(data: bytes | bytearray, start: int) -> int:
    """Return the index at which the body begins, or -1 if the head is incomplete. The search begins at ``start``. CR is optional."""
    found = -1
    for ending in (b"\n\r\n", b"\n\n"):
        at = data.find(ending, max(0, start - len(ending) + 1))
        if at >= 0 and (found < 0 or at + len(ending) < found):
            found = at + len(ending)
    return found


def parse_head(raw: bytes) -> RequestHead:
    """Parse the bytes before the body.

    Raises:
        RequestRefused: The head is malformed.
    """
    text = raw.decode("utf-8", "replace")
    first, _, rest = text.partition("\r\n")
    usual = usual_fields(rest.removesuffix("\r\n")) if "\n" not in first else None
    if usual is not None:
        method, version, path, query = _request_line(first)
        headers = CIMultiDict(usual)
    else:
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        method, version, path, query = _request_line(lines[0])
        headers = _fields(lines[1:-2])
    if len(headers.getall("Host", ())) > 1:
        raise RequestRefused
    minor = int(version[1])
    length = _length(headers, minor)
    if version[0] != "1":
        raise RequestRefused("505 HTTP Version Not Supported: unsupported protocol version")
    host = headers.get("Host")
    if host is None and minor and method != "CONNECT":
        raise RequestRefused("400 Bad Request: missing required Host header")
    if host and _NO_HOST.search(host):
        raise RequestRefused("400 Bad Request: malformed Host header")
    if usual is None and any(" " in name for name in headers):
        raise RequestRefused("400 Bad Request: invalid header name")
    connection = ",".join(headers.getall("Connection", ()))
    keep = not list_contains(connection, "close") if minor else list_contains(connection, "keep-alive")
    return RequestHead(method, path, query, headers, minor, length, keep)


def _request_line(line: str) -> tuple[str, str, str, str]:
    """Return the method, both digits of the version, the path and the query."""
    method, one, rest = line.partition(" ")
    target, two, version = rest.partition(" ")
    found = _VERSION.fullmatch(version)
    if not one or not two or found is None or not _is_token(method) or _TARGET_CONTROL.search(target):
        raise RequestRefused
    if method == "CONNECT" and not target.startswith("/"):
        return method, found[1] + found[2], "", ""
    target, _, query = target.partition("?")
    scheme = _SCHEME.match(target)
    if scheme is not None:
        target = target[scheme.end() :]
        target = "/" + target[2:].partition("/")[2] if target.startswith("//") else ""
    elif not target.startswith("/") and target != "*":
        raise RequestRefused
    if _BAD_ESCAPE.search(target):
        raise RequestRefused
    return method, found[1] + found[2], unquote(target) if "%" in target else target, query


def _fields(lines: list[str]) -> CIMultiDict[str]:
    headers: CIMultiDict[str] = CIMultiDict()
    unfolded: list[str] = []
    for line in lines:
        if line.startswith((" ", "\t")):
            if not unfolded:
                raise RequestRefused
            unfolded[-1] += " " + line.strip(" \t")
        else:
            unfolded.append(line)
    for line in unfolded:
        name, colon, value = line.partition(":")
        if not colon or not _is_name(name) or FORBIDDEN_IN_VALUE.search(value):
            raise RequestRefused
        headers.add(name, value.strip(" \t"))
    return headers


def _length(headers: CIMultiDict[str], minor: int) -> int | None:
    encodings: list[str] = headers.getall("Transfer-Encoding", [])
    chunked = bool(encodings) and minor > 0
    if chunked and (len(encodings) > 1 or encodings[0].lower() != "chunked"):
        raise RequestRefused("501 Not Implemented", "Unsupported transfer encoding")
    lengths = set(headers.getall("Content-Length", ()))
    if len(lengths) > 1 or not all(_DIGITS.fullmatch(length) for length in lengths):
        raise RequestRefused
    if not chunked:
        return int(lengths.pop()) if lengths else 0
    if any(list_contains(",".join(headers.getall("Trailer", ())), name) for name in _FRAMING):
        raise RequestRefused
    headers.popall("Content-Length", None)  # RFC 9112, section 6.3: chunks overrule it
    return None


def _is_name(name: str) -> bool:
    return _is_known_name(name) if len(name) <= _LONGEST_KNOWN else _NAME.fullmatch(name) is not None


@lru_cache(maxsize=512)
def _is_known_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _is_token(text: str) -> bool:
    return text in _METHODS or TOKEN.fullmatch(text) is not None


_REASONS = {one.value: one.phrase for one in HTTPStatus}


def response_head(minor: int, status: int, fields: Iterable[tuple[str, str]]) -> bytes:
    """Return the head of a response, including ``Date``. Line breaks in a field become blanks, so that a value cannot inject a field."""
    lines = [f"HTTP/1.{1 if minor else 0} {status} {_REASONS.get(status, f'status code {status}')}"]
    lines += [f"{name}: {value}" for name, value in fields]
    text = "\n".join(lines)
    if "\r" in text or text.count("\n") >= len(lines):
        text = "\n".join(line.replace("\r", " ").replace("\n", " ") for line in lines)
    return f"{text}\nDate: {_now()}\n\n".replace("\n", "\r\n").encode()


def has_body(status: int) -> bool:
    """Return whether responses with this status may have a body (RFC 9110, section 6.4.1)."""
    return status >= 200 and status not in (204, 304)


def _now() -> str:
    return _written(int(time.time()))


@lru_cache(maxsize=1)
def _written(second: int) -> str:
    return formatdate(second, usegmt=True)
