"""Encodes and decodes SPDY/3 frames. No I/O; the only state is that of the header compression.

Source: SPDY Protocol - Draft 3.1 (control frames, data frames, name/value header block); dictionary: draft 3, section 2.6.10.1.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

_VERSION = 3
_HEADER = 8
#: Maximum bytes of a peer's frame; Kubernetes' programs send at most 32 KiB of data at a time.
_MAX_FRAME = 1 << 22
#: Maximum bytes of one unpacked header block.
_MAX_HEADERS = 1 << 18

_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow authorization"
    " cache-control connection content-base content-encoding content-language content-length content-location content-md5 content-range"
    " content-type date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified"
    " location max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding"
    " upgrade user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie keep-alive"
    " origin"
)
_TAIL = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative Information"
    "204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error"
    "501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, "
    "Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,public"
    "privatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _dictionary() -> bytes:
    words = [word.replace("_", " ").encode() for word in _WORDS.split(" ")]
    return b"".join(struct.pack(">I", len(word)) + word for word in words) + _TAIL.encode()


DICTIONARY = _dictionary()


class SpdyError(Exception):
    """The peer violated the SPDY/3 protocol."""


class Kind(IntEnum):
    """The types of control frames. DATA is this module's own value for data frames."""

    DATA = 0
    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    HEADERS = 8
    WINDOW_UPDATE = 9


FIN = 0x01


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. ``number`` is the id of the stream or of the ping; ``headers`` have lower-case names, ``data`` belongs to data frames."""

    kind: Kind
    number: int
    fin: bool = False
    headers: Mapping[str, str] | None = None
    data: bytes = b""


class Packer:
    """Encodes frames. They must be sent in the order of encoding: headers are compressed over the whole connection."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(level=9, wbits=zlib.MAX_WBITS, zdict=DICTIONARY)

    def data(self, stream: int, data: bytes, *, fin: bool = False) -> bytes:
        return struct.pack(">II", stream, (FIN if fin else 0) << 24 | len(data)) + data

    def syn_stream(self, stream: int, headers: Mapping[str, str], *, fin: bool = False) -> bytes:
        return self._control(Kind.SYN_STREAM, struct.pack(">IIBB", stream, 0, 0, 0) + self._block(headers), fin=fin)

    def syn_reply(self, stream: int, headers: Mapping[str, str]) -> bytes:
        return self._control(Kind.SYN_REPLY, struct.pack(">I", stream) + self._block(headers))

    def rst_stream(self, stream: int, status: int) -> bytes:
        return self._control(Kind.RST_STREAM, struct.pack(">II", stream, status))

    def ping(self, number: int) -> bytes:
        return self._control(Kind.PING, struct.pack(">I", number))

    def goaway(self, last_stream: int) -> bytes:
        return self._control(Kind.GOAWAY, struct.pack(">II", last_stream, 0))

    def _control(self, kind: Kind, body: bytes, *, fin: bool = False) -> bytes:
        return struct.pack(">HHI", 0x8000 | _VERSION, kind, (FIN if fin else 0) << 24 | len(body)) + body

    def _block(self, headers: Mapping[str, str]) -> bytes:
        parts = [struct.pack(">I", len(headers))]
        for name, value in headers.items():
            for text in (name.lower().encode(), value.encode()):
                parts += [struct.pack(">I", len(text)), text]
        return self._deflate.compress(b"".join(parts)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


class Unpacker:
    """Decodes frames from bytes in any chunks."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS, zdict=DICTIONARY)
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the complete frames; the rest is buffered. Frames of unused kinds are skipped.

        Raises:
            SpdyError: The data breaks the protocol.
        """
        data = self._rest + data
        at = 0
        while len(data) - at >= _HEADER:
            first, second = struct.unpack_from(">II", data, at)
            flags, length = second >> 24, second & 0xFFFFFF
            if length > _MAX_FRAME:
                raise SpdyError(f"a frame of {length} bytes")
            end = at + _HEADER + length
            if len(data) < end:
                break
            body = data[at + _HEADER : end]
            at = end
            if first >> 31:
                frame = self._control(first, flags, body)
                if frame is not None:
                    yield frame
            else:
                yield Frame(Kind.DATA, first, bool(flags & FIN), None, body)
        self._rest = data[at:]

    def _control(self, first: int, flags: int, body: bytes) -> Frame | None:
        if first >> 16 & 0x7FFF != _VERSION:
            raise SpdyError("a control frame of another version")
        try:
            kind = Kind(first & 0xFFFF)
        except ValueError:
            return None
        if kind in (Kind.SETTINGS, Kind.WINDOW_UPDATE):
            return None
        if len(body) < 4:
            raise SpdyError(f"a {kind.name} frame that is too short")
        number = struct.unpack_from(">I", body)[0] & 0x7FFFFFFF if kind is not Kind.PING else struct.unpack_from(">I", body)[0]
        headers = None
        if kind in (Kind.SYN_STREAM, Kind.SYN_REPLY, Kind.HEADERS):
            headers = self._headers(body[10 if kind is Kind.SYN_STREAM else 4 :])
        return Frame(kind, number, bool(flags & FIN), headers)

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            plain = self._inflate.decompress(block, _MAX_HEADERS)
            if self._inflate.unconsumed_tail:
                raise SpdyError("a header block that is too large")
            count, at = struct.unpack_from(">I", plain)[0], 4
            texts = []
            for _ in range(2 * count):
                size = struct.unpack_from(">I", plain, at)[0]
                at += 4 + size
                if at > len(plain):
                    raise SpdyError("a header block that ends early")
                texts.append(plain[at - size : at].decode("utf-8", "replace"))
        except (zlib.error, struct.error) as fault:
            raise SpdyError(f"a header block that cannot be read: {fault}") from None
        return dict(zip(texts[::2], texts[1::2], strict=True))
