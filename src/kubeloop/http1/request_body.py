"""Reads a request's body, which has a known length or is chunked. No byte beyond the body is read.

Errors have the messages of Go's net/http/internal/chunked.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator

from kubeloop.http1.buffered_connection import BufferedConnection
from kubeloop.http1.errors import BodyMalformed, BodyTooLarge, ConnectionEnded
from kubeloop.http1.headers import MAX_DIGITS, is_hexadecimal

_LINE_LIMIT = 4096
#: Maximum bytes of framing beyond that of chunks of a fair size: many small chunks with long extensions are an attack.
_OVERHEAD = 16 * 1024


class RequestBody:
    """A request body. Use ``read`` or ``pieces``, not both.

    If ``length`` is None, the body is chunked. ``invite`` says that the client waits for 100 Continue."""

    def __init__(self, wire: BufferedConnection, length: int | None, *, invite: bool) -> None:
        self._wire = wire
        self._length = length
        self._chunked = length is None
        self._left = length or 0
        self._begun = False
        self._overhead = 0
        self.complete = length == 0
        #: Whether the framing is invalid, so that the end of the body is unknown.
        self.malformed = False
        #: Whether no 100 Continue was sent although the client waits for it, so that the client may or may not send the body.
        self.uninvited = invite and length != 0

    @property
    def left(self) -> int:
        """The number of remaining bytes of the body, or of the current chunk."""
        return self._left

    async def read(self, limit: int) -> bytes:
        """Return the whole body.

        Raises:
            BodyTooLarge: The body is longer than ``limit`` bytes.
            BodyMalformed: The framing of the body is invalid.
            ConnectionEnded: The client disconnected.
        """
        if self._length is not None and self._length > limit:
            raise BodyTooLarge(limit)
        whole = await self.piece()
        if len(whole) == self._length:
            return whole
        parts = bytearray(whole)  # not a list: chunks may be of one byte each
        while len(parts) <= limit and (piece := await self.piece()):
            parts += piece
        if len(parts) > limit:
            raise BodyTooLarge(limit)
        return bytes(parts)

    async def pieces(self) -> AsyncIterator[bytes]:
        while piece := await self.piece():
            yield piece

    async def piece(self) -> bytes:
        """Return the next bytes, or empty bytes at the end of the body."""
        if self.complete:
            return b""
        if self.uninvited:
            self.uninvited = False
            with contextlib.suppress(ConnectionEnded):  # the reader of the body notices it soon enough
                await self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._chunked and not self._left and not await self._next_chunk():
            return b""
        wire = self._wire
        if not wire.buffer:
            await wire.more()
        piece = wire.take(min(self._left, len(wire.buffer)))
        self._left -= len(piece)
        self.complete = not self._left and not self._chunked
        return piece

    async def drain(self, limit: int) -> bool:
        """Read and discard the remaining bytes. Return whether the body ended within ``limit`` bytes."""
        while not self.complete:
            try:
                limit -= len(await self.piece())
            except BodyMalformed:
                return False
            if limit < 0:
                return False
        return True

    async def _next_chunk(self) -> bool:
        try:
            return await self._to_next_chunk()
        except BodyMalformed:
            self.malformed = True
            raise

    async def _to_next_chunk(self) -> bool:
        """Skip to the data of the next chunk. Return False at the last chunk, whose trailers are skipped."""
        if self._begun:
            await self._separator()
        self._begun = True
        line = await self._line()
        self._left = _size(line)
        # A client may spend some framing bytes on each chunk, but not on empty progress.
        self._overhead = max(0, self._overhead + len(line) + 2 - 16 - 2 * self._left)
        if self._overhead > _OVERHEAD:
            raise BodyMalformed("chunked encoding contains too much non-data")
        if self._left:
            return True
        await self._trailers()
        self.complete = True
        return False

    async def _trailers(self) -> None:
        wire = self._wire
        while len(wire.buffer) < 2:
            await wire.more()
        if wire.buffer.startswith(b"\r\n"):
            wire.take(2)
            return
        seen = 0
        while wire.buffer.find(b"\r\n\r\n", seen, _LINE_LIMIT) < 0:
            seen = max(0, len(wire.buffer) - 3)
            if len(wire.buffer) >= _LINE_LIMIT:
                raise BodyMalformed("http: suspiciously long trailer after chunked body")
            await wire.more()
        while line := wire.take(wire.buffer.index(b"\n") + 1).decode("utf-8", "replace").rstrip("\r\n"):
            if ":" not in line:
                raise BodyMalformed(f"malformed MIME header: missing colon: {json.dumps(line, ensure_ascii=False)}")

    async def _separator(self) -> None:
        while len(self._wire.buffer) < 2:
            await self._wire.more()
        if self._wire.take(2) != b"\r\n":
            raise BodyMalformed("malformed chunked encoding")

    async def _line(self) -> bytes:
        wire = self._wire
        seen = 0
        while (at := wire.buffer.find(b"\n", seen)) < 0:
            seen = len(wire.buffer)
            if seen > _LINE_LIMIT:
                raise BodyMalformed("header line too long")
            await wire.more()
        line = wire.take(at + 1)
        if not line.endswith(b"\r\n"):
            raise BodyMalformed("chunked line ends with bare LF")
        line = line[:-2]
        if b"\r" in line:
            raise BodyMalformed("invalid CR in chunked line")
        return line


def _size(line: bytes) -> int:
    digits = line.partition(b";")[0].rstrip(b" \t")
    if not digits:
        raise BodyMalformed("empty hex number for chunk length")
    if not is_hexadecimal(digits):
        raise BodyMalformed("invalid byte in chunk length")
    if len(digits) > MAX_DIGITS:
        raise BodyMalformed("http chunk length too large")
    return int(digits, 16)
