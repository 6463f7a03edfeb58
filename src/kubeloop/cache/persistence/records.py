"""Records: what a state file is made of. Each carries its length and a checksum over itself and all before it.

So a file that was cut short, or of which any byte changed, or whose parts come from two files, is recognised; never repaired.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import BinaryIO

from kubeloop.meta.errors import KubeloopError

MAGIC = b"kubeloop cache 1"
#: No record is longer; a length that says so is damage, not a reason to take that much memory.
MAX_RECORD = 1 << 30
_PREFIX = 9


class Damaged(KubeloopError):
    """The file is not what was written."""


class Record(IntEnum):
    HEADER = 1
    DICTIONARY = 2
    OBJECTS = 3
    END = 4


class RecordWriter:
    """Gives the bytes of one record after the other; the first follow ``MAGIC``."""

    __slots__ = ("_sum",)

    def __init__(self) -> None:
        self._sum = zlib.crc32(MAGIC)

    def record(self, kind: Record, payload: bytes) -> bytes:
        head = len(payload).to_bytes(4, "little") + bytes([kind])
        self._sum = zlib.crc32(payload, zlib.crc32(head, self._sum))
        return b"".join((head, self._sum.to_bytes(4, "little"), payload))


class RecordReader:
    """Reads them back.

    Raises
        Damaged: from the constructor or ``next``, whatever is wrong; nothing of that record was handed out.
    """

    __slots__ = ("_file", "_sum")

    def __init__(self, file: BinaryIO) -> None:
        if file.read(len(MAGIC)) != MAGIC:
            raise Damaged("it does not begin as a state file of this version does")
        self._file = file
        self._sum = zlib.crc32(MAGIC)

    def next(self) -> tuple[Record, bytes]:
        prefix = self._file.read(_PREFIX)
        if len(prefix) < _PREFIX:
            raise Damaged("it ends too early")
        length = int.from_bytes(prefix[:4], "little")
        payload = self._file.read(length) if length <= MAX_RECORD else b""
        if len(payload) < length:
            raise Damaged("it ends too early")
        self._sum = zlib.crc32(payload, zlib.crc32(prefix[:5], self._sum))
        if self._sum != int.from_bytes(prefix[5:], "little"):
            raise Damaged("a checksum does not match")
        try:
            return Record(prefix[4]), payload
        except ValueError:
            raise Damaged(f"a record of unknown kind {prefix[4]}") from None

    def at_end(self) -> None:
        if self._file.read(1):
            raise Damaged("something follows its end")
