"""Excision: cuts ``metadata.managedFields`` out of an object by position, without reading the rest.

Its bytes are known from the projection; where they lie is searched for, and proven, or the object is cut as a tree.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

Buffer = bytes | memoryview

#: In JSON a quote inside a string is escaped, so these bytes are a key and nothing else.
_KEY = b'"managedFields":'
_COMMA, _BRACE = 0x2C, 0x7D


class Excision:
    """For the objects of one kind; ``openings`` are what a document of it begins with as servers write it, up to ``metadata``.

    The result begins with the first opening where the document has no kind of its own.
    """

    __slots__ = ("_opening", "_openings")

    def __init__(self, *openings: bytes) -> None:
        self._opening = openings[0]
        self._openings = (b'{"metadata":{', *(opening + b'"metadata":{' for opening in openings))

    def apply(self, managed_fields: Raw, document: Buffer, named: bool) -> bytes:
        """``managed_fields`` as decoded from this document. ``named``: it has kind and apiVersion."""
        whole = bytes(document)
        value = memoryview(managed_fields)
        at = whole.find(_KEY)
        start = at + len(_KEY)
        end = start + len(value)
        # In metadata, nothing but managedFields holds a list under that key. Where metadata does not come first, something before it may.
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
