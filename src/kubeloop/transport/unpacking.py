"""Unpacks an answer as it comes, up to a bound: a few kilobytes of gzip can stand for gigabytes (RFC 1952; ratio up to 1:1032)."""

from __future__ import annotations

import zlib

_GZIP = zlib.MAX_WBITS | 16


class UnpackError(Exception):
    """The text says what is wrong with the answer, for a person."""


class TooLargeError(UnpackError):
    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the answer is larger than {limit / (1 << 20):.0f} MiB; ask for less (limit=, a selector, stream()), "
            "or let the transport take more (max_answer=)"
        )


class Unpacking:
    """Of one body. Never holds more than ``limit`` bytes, and what was fed last.

    Raises:
        UnpackError: a coding that was not asked for.
    """

    def __init__(self, coding: str, limit: int) -> None:
        if coding not in ("gzip", "x-gzip"):
            raise UnpackError(f"the answer cannot be unpacked: it is coded as {coding}, which was not asked for")
        self._limit = limit
        self._left = limit
        self._parts: list[bytes] = []
        self._unpack = zlib.decompressobj(_GZIP)
        self._began = False

    def feed(self, data: bytes) -> None:
        """The next piece.

        Raises:
            UnpackError: no gzip, or ``TooLargeError``.
        """
        self._began = self._began or bool(data)
        while data:
            if self._unpack.eof:  # several members stand for one text (section 2.2)
                self._unpack = zlib.decompressobj(_GZIP)
            try:
                part = self._unpack.decompress(data, self._left + 1)
            except zlib.error as error:
                raise UnpackError(f"the answer cannot be unpacked: {error}") from error
            if len(part) > self._left:
                raise TooLargeError(self._limit)
            self._left -= len(part)
            self._parts.append(part)
            data = self._unpack.unused_data if self._unpack.eof else self._unpack.unconsumed_tail

    def finish(self) -> bytes:
        """The whole text; empty if nothing was fed.

        Raises:
            UnpackError: the end is missing.
        """
        if self._began and not self._unpack.eof:
            raise UnpackError("the answer cannot be unpacked: it ends in the middle of its gzip stream")
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
