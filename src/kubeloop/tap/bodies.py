"""Copies of bodies for display: collected within limits, decompressed, decoded from JSON or protobuf, and split into watch frames.

Nothing here changes what passes through the relay.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from kubeloop.codec.frames import FrameSplitter
from kubeloop.codec.protobuf import MEDIA_TYPE as PROTOBUF
from kubeloop.codec.protobuf import decode as decode_protobuf
from kubeloop.codec.protobuf import decode_event
from kubeloop.meta.errors import DecodeError, KubeloopError
from kubeloop.types import JSONObject

#: Maximum bytes of a body or of a frame that is shown and recorded; of larger ones only the size.
MAX_BODY: Final = 8 << 20

#: Maximum characters of a text that is no Status, such as the page of a load balancer.
MAX_ERROR_TEXT: Final = 200
#: Bytes of such a page in which the text is looked for.
_MARKUP_READ: Final = 4096
_MARKUP: Final = re.compile(r"<(style|script)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)

HeaderPairs = Sequence[tuple[str, str]]

_JSON = msgspec.json.Decoder()


def header_value(headers: HeaderPairs, name: str) -> str:
    """Return the first value of a header, or an empty text."""
    lower = name.lower()
    return next((value for field, value in headers if field.lower() == lower), "")


class BodyCopy:
    """A copy of a body of at most ``MAX_BODY`` bytes. ``size`` counts all bytes; ``data`` is None if some are missing."""

    def __init__(self) -> None:
        self.size = 0
        self._data: bytearray | None = bytearray()

    @property
    def data(self) -> bytes | None:
        return None if self._data is None else bytes(self._data)

    def add(self, chunk: bytes) -> None:
        """Append bytes."""
        self.size += len(chunk)
        if self._data is not None:
            if self.size > MAX_BODY:
                self._data = None
            else:
                self._data += chunk

    def skip(self, size: int) -> None:
        """Count bytes that are not available."""
        self.size += size
        self._data = None

    def drop(self) -> None:
        """Free the memory; ``size`` stays."""
        self._data = None


def media_type(headers: HeaderPairs) -> str:
    """Return the media type of a message in lower case, without parameters."""
    return header_value(headers, "Content-Type").partition(";")[0].strip().lower()


def is_json(headers: HeaderPairs) -> bool:
    kind = media_type(headers)
    return kind == "application/json" or kind.endswith("+json")


def is_protobuf(headers: HeaderPairs) -> bool:
    return media_type(headers) == PROTOBUF


def decompressed(data: bytes, headers: HeaderPairs) -> bytes | None:
    """Return a body without its gzip encoding; None if the encoding is unknown, or the body is invalid or too large."""
    coding = header_value(headers, "Content-Encoding").strip().lower()
    if coding in ("", "identity"):
        return data
    if coding != "gzip":
        return None
    unpacker = zlib.decompressobj(31)
    try:
        plain = unpacker.decompress(data, MAX_BODY)
    except zlib.error:
        return None
    return None if unpacker.unconsumed_tail or not unpacker.eof else plain


def decode_body(data: bytes | None, headers: HeaderPairs) -> JSONObject | list[JSONObject] | None:
    """Return the tree of a body in JSON or Kubernetes' protobuf; None if it has another form or cannot be decoded."""
    if not data:
        return None
    plain = decompressed(data, headers)
    if plain is None:
        return None
    try:
        if is_json(headers):
            tree = _JSON.decode(plain)
            return tree if isinstance(tree, dict | list) else None
        if is_protobuf(headers):
            return decode_protobuf(plain)
    except (msgspec.DecodeError, UnicodeDecodeError, KubeloopError, ValueError):
        return None
    return None


def error_text(status: int, tree: object, data: bytes | None, headers: HeaderPairs) -> str:
    """Return what the response to a failed request says, in one line: reason and message of its Status, or the beginning of another text.

    Args:
        status: The HTTP status.
        tree: The decoded body; None if it could not be decoded.
        data: The body.
        headers: The headers of the response.

    Returns:
        The text; empty for a status below 400, and for a body that is no text.
    """
    if status < 400:
        return ""
    if isinstance(tree, dict) and tree.get("kind") == "Status":
        return ": ".join(str(tree[name]) for name in ("reason", "message") if tree.get(name))
    if not data or not (is_json(headers) or media_type(headers).startswith("text/")):
        return ""
    text = (decompressed(data, headers) or b"")[:_MARKUP_READ].decode("utf-8", "replace")
    line = " ".join((_MARKUP.sub(" ", text) if media_type(headers) == "text/html" else text).split())
    return line if len(line) <= MAX_ERROR_TEXT else f"{line[: MAX_ERROR_TEXT - 1]}…"


class WatchFrames:
    """Splits the body of a watch into frames, and decodes them. After a gap or an error it yields nothing more.

    >>> frames = WatchFrames([("Content-Type", "application/json")])
    >>> list(frames.feed(b'{"type":"BOOKMARK"}\\n'))
    [b'{"type":"BOOKMARK"}']
    """

    def __init__(self, headers: HeaderPairs) -> None:
        self._protobuf = is_protobuf(headers)
        self._lines = FrameSplitter()
        self._rest = b""
        self.readable = (is_json(headers) or self._protobuf) and not header_value(headers, "Content-Encoding")

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the frames that ``chunk`` completes, without newline or length."""
        if not self.readable:
            return
        if self._protobuf:
            yield from self._binary(chunk)
            return
        try:
            frames = self._lines.feed(chunk)
        except DecodeError:
            self.end()
            return
        yield from (bytes(frame) for frame in frames)
        if self._lines.pending > MAX_BODY:
            self.end()

    def end(self) -> None:
        """Stop after a gap."""
        self.readable = False
        self._rest = b""
        self._lines = FrameSplitter()

    def _binary(self, chunk: bytes) -> Iterator[bytes]:
        data, at = self._rest + chunk, 0
        while at + 4 <= len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            if size > MAX_BODY:
                self.end()
                return
            if at + 4 + size > len(data):
                break
            yield data[at + 4 : at + 4 + size]
            at += 4 + size
        self._rest = data[at:]

    def decode(self, frame: bytes) -> JSONObject | None:
        """Return a frame as ``{"type": ..., "object": ...}``; None if it cannot be decoded."""
        try:
            tree = decode_event(frame) if self._protobuf else _JSON.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, KubeloopError, ValueError):
            return None
        return tree if isinstance(tree, dict) and isinstance(tree.get("object"), dict) else None
