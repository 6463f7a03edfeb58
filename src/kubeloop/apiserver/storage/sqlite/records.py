"""What a store's file holds of each change, with a checksum: SQLite has none of its own, and disks may return other bytes than they got."""

from __future__ import annotations

import zlib
from typing import NamedTuple


class Record(NamedTuple):
    """The change of ``revision``: ``value`` None is a deletion. ``created``: the revision that brought the key into being.

    ``expires``: when its lease ends, milliseconds since 1970; None: never.
    """

    revision: int
    key: str
    value: bytes | None
    created: int
    expires: int | None = None

    @property
    def checksum(self) -> int:
        head = f"{self.revision}\0{self.key}\0{self.created}\0{self.expires}\0{self.value is None}\0"
        return zlib.crc32(self.value or b"", zlib.crc32(head.encode()))


def number_checksum(name: str, number: int) -> int:
    return zlib.crc32(f"{name}\0{number}".encode())
