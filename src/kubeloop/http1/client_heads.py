"""The heads of messages for clients: parsing of responses, encoding of requests."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence

from kubeloop.http1.errors import ProtocolError
from kubeloop.http1.headers import FORBIDDEN_IN_VALUE, MAX_DIGITS, TOKEN, Headers, is_hexadecimal, usual_fields

# Parses the framing of an HTTP/1.1 response: its head, chunk sizes, lengths (RFC 9112).
#
# Parsing is strict where programs are known to differ: a text that two programs parse differently can hide one response in another.


_VERSION = b"HTTP/1."
_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?")
_EXTENDED = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(?:;[^\r\n\0]*)?")


def may_begin_head(data: bytes) -> bool:
    """Return whether the data can be the beginning of a response's head. If not, waiting for more bytes is useless."""
    return data.startswith(_VERSION[: len(data)]) and b"\n\n" not in data


def parse_head(head: bytes) -> tuple[int, int, Headers]:
    """Return status, minor version and fields of a response's head (without its empty line).

    Raises:
        ProtocolError: The head is malformed, or of another version of HTTP.
    """
    text = head.decode("latin-1")
    first, separator, rest = text.partition("\r\n")
    status = _STATUS_LINE.fullmatch(first)
    if status is None:
        raise ProtocolError("the answer does not begin with an HTTP/1.1 status line")
    usual = usual_fields(rest + "\r\n") if separator else []
    if usual is not None and "\r" not in first and "\0" not in first:
        return int(status[2]), int(status[1]), Headers(usual)
    lines = text.split("\r\n")[1:]
    ends = len(lines)
    if text.count("\n") != ends or text.count("\r") != ends or "\0" in text:
        raise ProtocolError("a header holds half a line break or a zero byte")
    headers = Headers()
    for line in lines:
        name, colon, value = line.partition(":")
        # A name contains no blanks: programs differ about folded lines, and about blanks before the colon (section 5).
        if not colon or TOKEN.fullmatch(name) is None:
            raise ProtocolError("a malformed header line")
        headers.add(name, value.strip(" \t"))
    return int(status[2]), int(status[1]), headers


def chunk_size(line: bytes) -> int:
    """Return the size in a chunk's first line; extensions are skipped.

    Raises:
        ProtocolError: The size is missing, or only int() would accept it (``0x10``, ``1_0``, ``+1``).
    """
    digits = line
    if not is_hexadecimal(line):  # other characters than digits; most lines have none, and each event of a watch has a line
        found = _EXTENDED.fullmatch(line)
        digits = found[1] if found is not None else b""
    if not 0 < len(digits) <= MAX_DIGITS:
        raise ProtocolError("a chunk without a size")
    return int(digits, 16)


def content_length(text: str) -> int:
    """Return the value of Content-Length. Repetitions of the same value are allowed (RFC 9110, section 8.6).

    Raises:
        ProtocolError: The value is not a number, or there are several.
    """
    values = {value.strip(" \t") for value in text.split(",")}
    value = values.pop()
    if values or not (value.isascii() and value.isdecimal()) or len(value) > MAX_DIGITS:
        raise ProtocolError("an unclear Content-Length")
    return int(value)


# RFC 9110, sections 5.1, 5.5 and 5.6.2. Values may contain non-ASCII text (a user's name in Impersonate-User), sent as UTF-8 like in Go.
_TARGET = re.compile(r"/[!-\"$-~]*")
# Headers that define the framing; only the transport sets them.
_OWN = frozenset(("host", "content-length", "transfer-encoding", "connection", "trailer", "upgrade", "te"))


def request_head(
    method: str,
    prefix: str,
    target: str,
    headers: Sequence[tuple[str, str]],
    length: int | None,
    upgrade: str = "",
    *,
    chunked: bool = False,
) -> bytes:
    """Encode the head of a request, including the empty line at its end.

    Args:
        method: The HTTP method.
        prefix: The text before the target, for a plain HTTP proxy.
        target: Path and query.
        headers: The fields; Host is the first.
        length: Bytes of the body. None: no body.
        upgrade: The protocol to change to. Empty: none.
        chunked: The body has chunked transfer coding, because its length is unknown.

    Raises:
        ValueError: The method, path or a header cannot be sent. Values are not shown: they may be secret.
    """
    if TOKEN.fullmatch(method) is None or _TARGET.fullmatch(target) is None:
        asked = _shown(method, target)
        raise ValueError(f"a path begins with / and holds no line break or blank; percent-encode non-ASCII characters ({asked})")
    lines = [f"{method} {prefix}{target} HTTP/1.1"]
    written = "".join([f"{name}: {value}\r\n" for name, value in headers])
    usual = usual_fields(written)
    if headers and usual == [*headers] and _OWN.isdisjoint([name.lower() for name, _ in headers[1:]]):
        lines.append(written.removesuffix("\r\n"))
        headers = ()
    for place, (name, value) in enumerate(headers):
        if TOKEN.fullmatch(name) is None or FORBIDDEN_IN_VALUE.search(value):
            asked = _shown(method, target)
            raise ValueError(f"the header {name!r} holds a line break or another control character, or its name a blank ({asked})")
        if place and name.lower() in _OWN:
            raise ValueError(f"the header {name} is the transport's own; leave it out ({_shown(method, target)})")
        lines.append(f"{name}: {value}")
    if upgrade:
        lines += ["Connection: Upgrade", f"Upgrade: {upgrade}"]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    elif length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")


async def chunked_body(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Encode a body with chunked transfer coding (RFC 9112, section 7.1)."""
    async for part in parts:
        if part:
            yield b"%x\r\n%b\r\n" % (len(part), part)
    yield b"0\r\n\r\n"


def _shown(method: str, target: str) -> str:
    """Return the request line without the query, whose values may be secret."""
    return f"{method} {target.partition('?')[0]!r}"
