"""Lists as a client may see them, written while they arrive: memory does not grow with the number of objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec

from kubeloop.codec.list_pages import ListSplitter
from kubeloop.endpoints.encoding import encode
from kubeloop.meta.errors import DecodeError
from kubeloop.proxy.encodings import Form, shaped
from kubeloop.proxy.partial_objects import PartialDecoder, has_name
from kubeloop.proxy.rules import Examination, HeadMetadata, Rewritten
from kubeloop.proxy.upstream import bad_gateway
from kubeloop.proxy.view import ClientView
from kubeloop.types import JSONObject

#: Bytes of a response that are collected before they are sent: until then an error can still become a Status.
COMMIT: Final = 256 << 10
#: Bytes that are joined to one write afterwards.
_WRITE: Final = 64 << 10
#: The text before the first item. A list without items has null or an empty list instead.
_ITEMS: Final = b'"items":['


class _Item(msgspec.Struct):
    """The part of an item that most rules decide by. ``kind`` and ``apiVersion`` are only in items of custom resources."""

    metadata: HeadMetadata


_decode_item = msgspec.json.Decoder(_Item).decode
_decode = msgspec.json.Decoder(dict[str, Any]).decode

#: The metadata of an item; for rules that need every object, the object as far as they need it.
_ReadItem = _Item | JSONObject


def _reader(decoder: PartialDecoder) -> Callable[[memoryview], _ReadItem]:
    """Return a function that reads an item with one pass over its bytes."""

    def read(data: memoryview) -> _ReadItem:
        try:
            tree = decoder.decode(data)
        except msgspec.ValidationError:  # an unusual object, of which the whole tree is needed
            return _decode_item(data)
        return tree if has_name(tree) else _decode_item(data)

    return read


class ListRewriter:
    """Rewrites the body of one list. ``feed`` takes a chunk and returns what can be written; ``finish`` returns the rest.

    Guarantees
        An object is written only after the rules have seen it. resourceVersion and continue stay; remainingItemCount is removed, because it
        counts hidden objects.

    Args:
        view: What the client sees of each object.
        form: The form of the response.
        collect: Collect the keys of the objects that the client can see.
        joins_pages: The list is made of several pages of the API server: ``next_page`` begins another one, and ``close`` ends the list.

    Attributes:
        version: The resourceVersion of the list, after ``finish``.
        keys: Namespace and name of the objects that the client can see; None unless ``collect``.
        continue_token: The token of the next page, after ``finish``; empty for the last page.
        shown: Number of objects that the client gets.
        shown_at: Their positions in the present page, if pages are joined.
    """

    def __init__(self, view: ClientView, form: Form, *, collect: bool, joins_pages: bool = False) -> None:
        self._view = view
        self._synchronous = view.synchronous
        self._form = form
        reads_objects = view.needs_objects and not form.is_metadata
        self._read: Callable[[memoryview], _ReadItem] = _decode_item
        if reads_objects and view.decoder is not None:
            self._read = _reader(view.decoder)
        self._splitter: ListSplitter[_ReadItem] = ListSplitter(self._read)
        self._begun = False
        self._separator = _ITEMS
        self._no_items = b'"items":null' if form.is_metadata else b'"items":[]'
        self._identity: JSONObject = {}
        self._joins_pages = joins_pages
        self._is_further = False
        self._end: JSONObject = {}
        self._position = 0
        self.version = ""
        self.continue_token = ""
        self.shown = 0
        self.shown_at: list[int] = []
        self.keys: set[tuple[str, str]] | None = set() if collect else None

    async def feed(self, chunk: bytes) -> bytes:
        """Take a part of the body.

        Raises:
            ApiError: A rule failed, or the API server sent something else than a list of objects.
        """
        try:
            items = self._splitter.feed(chunk)
        except (DecodeError, msgspec.DecodeError, RecursionError) as error:
            raise bad_gateway(f"the API server sent a list with an item that is no object: {error}") from None
        if not items:
            return b""
        parts: list[bytes | memoryview] = []
        if not self._begun:
            parts.append(self._head(_decode(self._splitter.begin + b"]}")))
        await self._add(items, parts)
        return b"".join(parts)

    async def finish(self) -> bytes:
        """Return the rest of the body, after its end.

        Raises:
            ApiError: See ``feed``.
        """
        try:
            document = _decode(self._splitter.rest())
            items, metadata, kind = self._splitter.finish()
        except (msgspec.DecodeError, DecodeError, RecursionError) as error:
            raise bad_gateway(f"the API server sent something else than a list: {error}") from None
        if "items" not in document and not kind.endswith("List"):
            raise bad_gateway("the API server sent something else than a list")  # such as a single object
        if document.pop("items", ()) is None:
            self._no_items = b'"items":null'
        self.version = metadata.resource_version or self.version
        self.continue_token = metadata.continue_ or self.continue_token
        parts: list[bytes | memoryview] = []
        if not self._begun:
            # A short list, or a list that the API server writes in an unusual way: its head is known only now.
            parts.append(self._head(document if not self._splitter.begin else _decode(self._splitter.begin + b"]}")))
            if not self._splitter.begin:
                document = {}
        await self._add(items, parts)
        # Lists of custom resources are sorted by key: their kind and metadata come after the items.
        if not self._is_further:
            self._end |= self._list_fields(document)
        if not self._joins_pages:
            parts.append(self.close())
        return b"".join(parts)

    def next_page(self) -> None:
        """Begin the next page of the API server, whose objects are added to the same list."""
        self._splitter = ListSplitter(self._read)
        self._is_further = True
        self._position = 0
        self.continue_token = ""
        self.shown_at.clear()

    def close(self) -> bytes:
        """Return the end of the list."""
        if self._joins_pages and isinstance(metadata := self._end.get("metadata"), dict):
            metadata.pop("continue", None)
            if self.continue_token:
                metadata["continue"] = self.continue_token
        tail: bytes = encode(self._end)
        return (b"]" if self.shown else self._no_items) + (b"," + tail[1:] if self._end else b"}") + b"\n"

    def _head(self, document: JSONObject) -> bytes:
        self._begun = True
        document.pop("items", None)
        kind = document.get("kind")
        if isinstance(kind, str) and kind.endswith("List") and kind != "List":
            # Items of built-in kinds lack these fields; rules see them as in a single object.
            self._identity = {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion", "")}
        document = self._list_fields(document)
        if self._joins_pages and "metadata" in document:
            self._end["metadata"] = document.pop("metadata")  # the last page decides about it
        fields = encode(document)
        return fields[:-1] + (b"," if document else b"")

    def _list_fields(self, document: JSONObject) -> JSONObject:
        if isinstance(metadata := document.get("metadata"), dict):
            metadata.pop("remainingItemCount", None)
            self.version = metadata.get("resourceVersion") or self.version
            if self._form.is_metadata and not metadata.get("continue"):
                metadata.pop("continue", None)  # lists of custom resources have an empty token, lists of metadata none
        if self._form.is_metadata:
            of_metadata = {"kind": "PartialObjectMetadataList", "apiVersion": self._form.api_version}
            document |= {name: value for name, value in of_metadata.items() if name in document}
        return document

    async def _add(self, items: list[tuple[_ReadItem, memoryview]], parts: list[bytes | memoryview]) -> None:
        """Add the items that the client gets to the parts of the body."""
        view, keys = self._view, self.keys
        examine, passes = view.examine, not self._form.is_metadata
        for read, raw in items:
            self._position += 1
            data: bytes | memoryview | None
            if isinstance(read, _Item):
                examined = examine(read.metadata)
                if examined is Examination.HIDDEN:
                    view.count_hidden(read.metadata)
                    continue
                if examined is Examination.NEEDS_OBJECT:
                    data = self._item(self._tree(raw), raw) if self._synchronous else await self._item_async(raw)
                else:
                    data = raw if passes else encode(shaped(self._identity | self._tree(raw), self._form))
            else:  # never with Python callables, which need whole trees
                data = self._item(read, raw)
            if data is None:
                continue
            self.shown += 1
            if self._joins_pages:
                self.shown_at.append(self._position)
            parts.append(self._separator)
            parts.append(data)
            self._separator = b","
            if keys is not None:
                keys.add(_key(read))

    def _item(self, tree: JSONObject, raw: memoryview) -> bytes | memoryview | None:
        """Return an item for the client, or None if it gets none."""
        return self._written(self._view.see(self._identity | tree), tree, raw)

    async def _item_async(self, raw: memoryview) -> bytes | memoryview | None:
        tree = self._tree(raw)
        return self._written(await self._view.see_async(self._identity | tree), tree, raw)

    def _written(self, result: Rewritten, tree: JSONObject, raw: memoryview) -> bytes | memoryview | None:
        seen = result.object
        if seen is None:
            return None
        if self._form.is_metadata:
            return encode(shaped(seen, self._form))
        if not result.changed:
            return raw
        if added := self._identity.keys() - tree.keys():
            seen = dict(seen)
            for name in added:
                seen.pop(name, None)
        return encode(seen)

    def _tree(self, raw: memoryview) -> JSONObject:
        """Return an item, as far as the rules need it. The metadata alone are made of a whole tree."""
        if self._view.decoder is None or self._form.is_metadata:
            return _decode(raw)
        try:
            return self._view.decoder.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            return _decode(raw)


def _key(item: _ReadItem) -> tuple[str, str]:
    """Return namespace and name of an item."""
    if isinstance(item, _Item):
        return item.metadata.namespace, item.metadata.name
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata.get("name", "")


async def rewritten_list(chunks: AsyncIterator[bytes], rewriter: ListRewriter) -> AsyncIterator[bytes]:
    """Yield the rewritten body of a list.

    Raises:
        ApiError: See ``ListRewriter.feed``.
        TransportError: The body broke off.
    """
    async for chunk in chunks:
        data = await rewriter.feed(chunk)
        if data:
            yield data
        # A list that arrives faster than it is rewritten must leave other connections their turn.
        await asyncio.sleep(0)
    yield await rewriter.finish()


async def begin(parts: AsyncIterator[bytes]) -> tuple[bytes, bool]:
    """Collect the beginning of a response, at most about ``COMMIT`` bytes. Return it, and whether it is the whole."""
    collected: list[bytes] = []
    size = 0
    async for part in parts:
        collected.append(part)
        size += len(part)
        if size >= COMMIT:
            return b"".join(collected), False
    return b"".join(collected), True


async def joined(first: bytes, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield ``first`` and then ``parts``, joined to writes of useful size."""
    waiting, size = [first], len(first)
    async for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= _WRITE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
