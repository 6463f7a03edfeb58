"""Reads the parts of an HTTP/1.1 answer that say how the rest is framed: its head, chunk sizes, lengths (RFC 9112).

Strict where programs are known to differ: what two of them read differently can hide one answer in another.
"""

from __future__ import annotations

import re

from kubeloop.http1.errors import ProtocolError
from kubeloop.http1.grammar import MAX_DIGITS, TOKEN, is_hexadecimal
from kubeloop.http1.headers import Headers

_VERSION = b"HTTP/1."
_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?")
_EXTENDED = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(?:;[^\r\n\0]*)?")


def may_begin_head(data: bytes) -> bool:
    """False if no further bytes can make a head of this, so that waiting for them would be waiting forever."""
    return data.startswith(_VERSION[: len(data)]) and b"\n\n" not in data


def parse_head(head: bytes) -> tuple[int, int, Headers]:
    """Status, minor version and fields of an answer's head (without its empty line).

    Raises:
        ProtocolError: malformed, or another version of HTTP.
    """
    text = head.decode("latin-1")
    first, *lines = text.split("\r\n")
    status = _STATUS_LINE.fullmatch(first)
    if status is None:
        raise ProtocolError("the answer does not begin with an HTTP/1.1 status line")
    ends = len(lines)
    if text.count("\n") != ends or text.count("\r") != ends or "\0" in text:
        raise ProtocolError("a header holds half a line break or a zero byte")
    headers = Headers()
    for line in lines:
        name, colon, value = line.partition(":")
        # A name holds no blanks: folded lines, and blanks before the colon, are read differently by different programs (section 5).
        if not colon or TOKEN.fullmatch(name) is None:
            raise ProtocolError("a malformed header line")
        headers.add(name, value.strip(" \t"))
    return int(status[2]), int(status[1]), headers


def chunk_size(line: bytes) -> int:
    """The size in a chunk's first line; extensions are read over.

    Raises:
        ProtocolError: none, or one that int() would read and others not (``0x10``, ``1_0``, ``+1``).
    """
    digits = line
    if not is_hexadecimal(line):  # not only digits; most lines are, and each event of a watch has one
        found = _EXTENDED.fullmatch(line)
        digits = found[1] if found is not None else b""
    if not 0 < len(digits) <= MAX_DIGITS:
        raise ProtocolError("a chunk without a size")
    return int(digits, 16)


def content_length(text: str) -> int:
    """The value of Content-Length; the same one several times counts as one (RFC 9110, section 8.6).

    Raises:
        ProtocolError: not a number, or several.
    """
    values = {value.strip(" \t") for value in text.split(",")}
    value = values.pop()
    if values or not (value.isascii() and value.isdecimal()) or len(value) > MAX_DIGITS:
        raise ProtocolError("an unclear Content-Length")
    return int(value)
