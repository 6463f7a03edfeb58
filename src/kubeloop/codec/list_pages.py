"""Splits a list response into its items while it arrives, so that a list of any length needs memory for one item.

An item is accepted only if its bytes alone are a whole JSON object: no other split is possible, and no hand-written scanner is trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from kubeloop.meta.errors import DecodeError
from kubeloop.meta.object_meta import ListMeta

T = TypeVar("T")


class _Head(msgspec.Struct):
    """A list without its items. ``kind`` distinguishes a list from a Table or a Status."""

    metadata: ListMeta | None = None
    kind: str = ""


class _Page(_Head):
    items: list[msgspec.Raw] | None = None


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_page = msgspec.json.Decoder(_Page).decode
_check = msgspec.json.Decoder(msgspec.Raw).decode
_ITEMS = b'"items":['


class ListSplitter(Generic[T]):
    """Splits the body of a list response. ``feed`` takes a chunk and returns a pair for each item that is complete: the result of ``read``
    and the item's bytes (a view: copy the bytes to store them).

    Guarantees
        Items come in order, each exactly once, whatever the spacing, key order or chunks of the body.
        Bodies written as Kubernetes writes them are split item by item; others are stored until ``finish`` and then decoded whole.

    Raises
        DecodeError: not JSON, cut off, or not a list (from ``finish``); whatever ``read`` raises for an item that is JSON. For other bytes
            ``read`` raises this error, or msgspec.DecodeError.
    """

    def __init__(self, read: Callable[[memoryview], T]) -> None:
        self._read = read
        self._buffer = b""
        self._parts: list[bytes] = []
        self._size = 0
        self._head: _Head | None = None
        self._whole = False
        self._separator = b""
        self._searched = 0
        self._begun = b""

    @property
    def begin(self) -> bytes:
        """The text before the first item, with the bracket. Empty until it has arrived, and for bodies that are not split."""
        return self._begun

    def rest(self) -> bytes:
        """Return the body without the items that ``feed`` has returned, for callers that write the list again: a JSON object, if the body
        is one."""
        self._join()
        return self._buffer if self._head is None else b'{"items":[' + self._buffer

    def feed(self, chunk: bytes) -> list[tuple[T, memoryview]]:
        self._parts.append(chunk)
        self._size += len(chunk)
        # Joining only when as much has arrived as was waiting makes the copying linear, also for a body that never splits.
        if self._whole or self._size < len(self._buffer):
            return []
        self._join()
        at = 0
        if self._head is None:
            at = self._begin()
            if self._head is None:
                return []
        return self._items(at)

    def finish(self) -> tuple[list[tuple[T, memoryview]], ListMeta, str]:
        """Return the remaining items, the list's metadata, and its kind."""
        body = self.rest()
        try:
            page = _decode_page(body)
        except msgspec.DecodeError as error:
            raise DecodeError(f"a list answer is not a list: {error} (of {len(body)} bytes)") from None
        rest = [(self._read(memoryview(item)), memoryview(item)) for item in page.items or ()]
        head = self._head or page
        return rest, page.metadata or head.metadata or ListMeta(), page.kind or head.kind

    def _join(self) -> None:
        self._buffer = b"".join((self._buffer, *self._parts))
        self._parts.clear()
        self._size = 0

    def _begin(self) -> int:
        """Return the index after the ``[`` of the items, if the beginning of the list has arrived."""
        at = self._buffer.find(_ITEMS)
        if at < 0:
            self._whole = len(self._buffer) > 65_536
            return 0
        at += len(_ITEMS)
        try:
            # The text is valid when the list is closed here: so these items are the list's own, not those of a nested value.
            self._head = _decode_head(self._buffer[:at] + b"]}")
            self._begun = self._buffer[:at]
        except msgspec.DecodeError:
            self._whole = True
        return at

    def _items(self, at: int) -> list[tuple[T, memoryview]]:
        buffer = self._buffer
        view = memoryview(buffer)
        result: list[tuple[T, memoryview]] = []
        search = at + self._searched
        if not self._separator:
            colon = buffer.find(b":", at)
            if colon < 0 or buffer[at] != 0x7B:
                self._buffer = buffer[at:]
                return result
            self._separator = b"}," + buffer[at : colon + 1]
        separator, read = self._separator, self._read
        skipped = 0
        while True:
            # An item is rarely less than half as long as the one before it. If it is, its end lies in the skipped part, and the end of a
            # later item is found: the text is not one document, and the search begins again without skipping.
            end = buffer.find(separator, search + skipped)
            found = None
            if end >= 0:
                document = view[at : end + 1]
                try:
                    found = read(document)
                except (DecodeError, msgspec.DecodeError):
                    # The supposed end of the item lies inside it, unless the item is whole and only refused.
                    if _is_whole(document):
                        raise
            if found is not None:
                result.append((found, document))
                skipped = (end - at) >> 1
                at = search = end + 2
            elif skipped:
                skipped = 0
            elif end >= 0:
                search = end + 1
            else:
                break
        self._searched = max(search, len(buffer) - len(separator)) - at
        self._buffer = buffer[at:]
        return result


def _is_whole(document: memoryview) -> bool:
    """Return whether some bytes are one JSON document."""
    try:
        _check(document)
    except msgspec.DecodeError:
        return False
    return True
