"""Cuts ``metadata.managedFields`` out of an object by position, without decoding the rest.

The projection returns their bytes; their position is searched for and verified, else the object is decoded and cut as a tree.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

Buffer = bytes | memoryview

#: JSON escapes a quote inside a string, so these bytes can only be a key.
_KEY = b'"managedFields":'
_COMMA, _BRACE = 0x2C, 0x7D


class Excision:
    """Cuts managedFields out of the objects of one kind.

    ``openings`` are the beginnings of its documents as servers write them, up to ``metadata``. The first one is put in front of a
    document without a kind.
    """

    __slots__ = ("_opening", "_openings")

    def __init__(self, *openings: bytes) -> None:
        self._opening = openings[0]
        self._openings = (b'{"metadata":{', *(opening + b'"metadata":{' for opening in openings))

    def apply(self, managed_fields: Raw, document: Buffer, named: bool) -> bytes:
        """Return the document without them. ``managed_fields``: decoded from this document. ``named``: it has kind and apiVersion."""
        whole = bytes(document)
        value = memoryview(managed_fields)
        at = whole.find(_KEY)
        start = at + len(_KEY)
        end = start + len(value)
        # In metadata, only managedFields holds a list under that key. Where metadata is not the first field, an earlier field may.
        if at < 0 or not whole.startswith(value, start) or not (whole.startswith(self._openings) or whole.find(_KEY, end) < 0):
            return self._as_tree(whole, named)
        if whole[at - 1] == _COMMA:
            at -= 1
        elif whole[end] == _COMMA:
            end += 1
        elif whole[end] != _BRACE:
            return self._as_tree(whole, named)
        view = memoryview(whole)
        return b"".join((view[:at], view[end:]) if named else (self._opening, view[1:at], view[end:]))

    def _as_tree(self, whole: bytes, named: bool) -> bytes:
        tree: dict[str, Any] = msgspec.json.decode(whole)
        tree["metadata"].pop("managedFields", None)
        rest = msgspec.json.encode(tree)
        return rest if named else b"".join((self._opening, rest[1:]))
