"""Recent: the documents of the last few changes, not unpacked from what they were just packed into: who acts on a change reads it soon."""

from __future__ import annotations


class Recent:
    """Documents by their blobs, the oldest leave first. ``limit`` in bytes; a document of more than a quarter of it is not kept.

    Written by one thread, read from any.
    """

    __slots__ = ("_bytes", "_documents", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._documents: dict[bytes, bytes] = {}

    def put(self, blob: bytes, document: bytes | memoryview) -> None:
        size = len(document)
        if 4 * size > self._limit or blob in self._documents:
            return
        documents = self._documents
        documents[blob] = bytes(document)
        self._bytes += size
        while self._bytes > self._limit:
            self._bytes -= len(documents.pop(next(iter(documents))))

    def get(self, blob: bytes) -> bytes | None:
        return self._documents.get(blob)

    def __len__(self) -> int:
        return len(self._documents)
