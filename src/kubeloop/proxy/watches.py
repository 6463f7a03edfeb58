"""Watches as a client may see them: each event is passed, changed, dropped, or turned into the event that keeps the client's list right.

A list and the watch that continues it must agree. The rewriter remembers the keys that its client can see: an object that becomes hidden
is deleted for the client, an object that becomes visible is added, and the deletion of an object that the client never saw is dropped.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

import msgspec

from kubeloop.endpoints.encoding import encode
from kubeloop.endpoints.negotiation import JSON
from kubeloop.proxy.encodings import Form, event_frame, shaped
from kubeloop.proxy.partial_objects import has_name
from kubeloop.proxy.rules import Examination, HeadMetadata
from kubeloop.proxy.tables import TableRewriter, object_of
from kubeloop.proxy.upstream import bad_gateway, parsed
from kubeloop.proxy.view import ClientView
from kubeloop.types import JSONObject

Key = tuple[str, str]

_CHANGES: Final = ("ADDED", "MODIFIED", "DELETED")
#: Types of events that contain no object of the resource.
_UNCHANGED: Final = ("BOOKMARK", "ERROR")
#: Fields of an object's metadata that a client sees in the deletion of an object that became hidden. The others may be what hides it.
_OF_HIDDEN: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class _Head(msgspec.Struct):
    metadata: HeadMetadata | None = None


class _Event(msgspec.Struct):
    """The part of an event that most rules decide by."""

    type: str
    object: _Head = msgspec.field(default_factory=_Head)


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_head = msgspec.json.Decoder(_Event).decode
_decode_raw = msgspec.json.Decoder(_RawEvent).decode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class WatchRewriter:
    """Rewrites the events of one watch, in order.

    Guarantees
        Bookmarks and errors pass unchanged; resourceVersions are never changed.
        The client's objects after each event are the visible ones of the API server at that version, if they were at the watch's begin.

    Args:
        view: What the client sees of each object.
        form: The form of the response.
        visible: Keys that the client can see at the begin. Empty for a watch that begins with synthetic ADDED events.
        table: Rewrites Tables, if the form is Table.
    """

    def __init__(self, view: ClientView, form: Form, visible: set[Key], table: TableRewriter | None = None) -> None:
        self._view = view
        self._form = form
        self._visible = visible
        self._table = table
        self._columns: Any = None
        # Another form than JSON, or the metadata alone, is made of a whole tree.
        self._decoder = view.decoder if form.is_plain_json else None

    def event(self, frame: bytes | memoryview) -> bytes | Awaitable[bytes | None] | None:
        """Return a frame for the client, None if it gets none, or an awaitable of these if a rule needs to wait.

        Raises:
            ApiError: A rule failed, or the frame is no event of an object.
        """
        return self._object_event(frame) if self._table is None else self._table_event(frame)

    def _object_event(self, frame: bytes | memoryview) -> bytes | Awaitable[bytes | None] | None:
        if self._view.needs_objects and (event := self._decoded_change(frame)) is not None:
            return self._examined(*event, frame)
        try:
            head = _decode_head(frame)
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad_gateway(f"the API server sent a malformed watch event: {error}") from None
        type_, metadata = head.type, head.object.metadata
        if type_ in _UNCHANGED:
            return self._unchanged(type_, frame)
        if type_ not in _CHANGES or metadata is None:
            raise bad_gateway("the API server sent a watch event that is no change of an object")
        found = self._view.examine(metadata)
        if found is Examination.NEEDS_OBJECT:
            return self._examined(type_, metadata, self._tree(frame), frame)
        if found is Examination.HIDDEN:
            self._view.count_hidden(metadata)
            return self._hidden(metadata, frame)
        sent = self._transition(type_, metadata)
        if sent is None:
            return None
        if self._form.is_plain_json:
            return bytes(frame) + b"\n" if sent == type_ else _retyped(sent, frame)
        return event_frame(sent, shaped(_object_in(frame), self._form), self._form)

    def _examined(
        self, type_: str, metadata: HeadMetadata, tree: JSONObject, frame: bytes | memoryview
    ) -> bytes | Awaitable[bytes | None] | None:
        if not self._view.synchronous:
            return self._examined_async(type_, metadata, frame, tree)
        result = self._view.see(tree)
        return self._written(type_, metadata, frame, result.object, changed=result.changed)

    def _decoded_change(self, frame: bytes | memoryview) -> tuple[str, HeadMetadata, JSONObject] | None:
        """Return type, metadata and object of a change, with one pass over the frame. None: the frame needs a closer look."""
        if self._decoder is None:
            return None
        try:
            type_, tree = self._decoder.decode_event(frame)
        except (msgspec.DecodeError, RecursionError):
            return None
        if type_ not in _CHANGES or not has_name(tree):
            return None
        metadata = tree["metadata"]
        return type_, HeadMetadata(metadata.get("name", ""), metadata.get("namespace", "")), tree

    def _tree(self, frame: bytes | memoryview) -> JSONObject:
        """Return the object of an event, as far as the rules need it."""
        if self._decoder is None:
            return _object_in(frame)
        try:
            return self._decoder.decode_event(frame)[1]
        except (msgspec.DecodeError, RecursionError):
            return _object_in(frame)

    async def _examined_async(self, type_: str, metadata: HeadMetadata, frame: bytes | memoryview, tree: JSONObject) -> bytes | None:
        result = await self._view.see_async(tree)
        return self._written(type_, metadata, frame, result.object, changed=result.changed)

    def _written(
        self, type_: str, metadata: HeadMetadata, frame: bytes | memoryview, seen: JSONObject | None, *, changed: bool
    ) -> bytes | None:
        if seen is None:
            return self._hidden(metadata, frame)
        sent = self._transition(type_, metadata)
        if sent is None:
            return None
        if not changed and self._form.is_plain_json:
            return bytes(frame) + b"\n" if sent == type_ else _retyped(sent, frame)
        return event_frame(sent, shaped(seen, self._form), self._form)

    def _hidden(self, metadata: HeadMetadata, frame: bytes | memoryview) -> bytes | None:
        """Return the frame for an object that the client must not see: its deletion, if the client has seen it."""
        if not self._was_visible(metadata):
            return None
        return event_frame("DELETED", shaped(rest_of_hidden(_object_in(frame), self._view), self._form), self._form)

    def _was_visible(self, metadata: HeadMetadata) -> bool:
        """Return whether the client can see an object, and forget it."""
        if self._view.is_constant:
            return False
        key = metadata.namespace, metadata.name
        if key not in self._visible:
            return False
        self._visible.discard(key)
        return True

    def _transition(self, type_: str, metadata: HeadMetadata) -> str | None:
        """Return the type of the event for an object that the client may see; None if the client gets no event."""
        if self._view.is_constant:
            return type_
        key = metadata.namespace, metadata.name
        if type_ == "DELETED":
            if key not in self._visible:
                return None
            self._visible.discard(key)
            return type_
        if type_ == "MODIFIED" and key not in self._visible:
            self._visible.add(key)
            return "ADDED"
        self._visible.add(key)
        return type_

    def _unchanged(self, type_: str, frame: bytes | memoryview) -> bytes:
        """Return a bookmark or an error, which clients need unchanged."""
        if self._form.media_type == "application/json" and (not self._form.is_metadata or type_ == "ERROR"):
            return bytes(frame) + b"\n"
        tree = _object_in(frame)
        return event_frame(type_, tree if type_ == "ERROR" else shaped(tree, self._form), self._form)

    async def _table_event(self, frame: bytes | memoryview) -> bytes | None:
        """Rewrite an event whose object is a Table with one row."""
        assert self._table is not None
        event = parsed(bytes(frame))
        type_, document = str(event.get("type")), event.get("object")
        if isinstance(document, dict) and document.get("kind") == "Table":
            self._table.learn(document)
        elif type_ in _CHANGES:
            # The resource has no Tables, and the client accepts objects: otherwise the API server would have refused the watch.
            self._table, self._form = None, Form(JSON)
            written = self._object_event(frame)
            return written if written is None or isinstance(written, bytes) else await written
        if type_ == "BOOKMARK" and isinstance(document, dict):
            return encode({"type": type_, "object": self._table.of_bookmark(document)}) + b"\n"
        if type_ in _UNCHANGED:
            return bytes(frame) + b"\n"
        if type_ not in _CHANGES or not isinstance(document, dict):
            raise bad_gateway("the API server sent a watch event that is no change of an object")
        self._columns = document.get("columnDefinitions") or self._columns
        rows, sent = [], type_
        for row in document.get("rows") or ():
            tree = object_of(row)
            head = tree["metadata"]
            metadata = HeadMetadata(head.get("name", ""), head.get("namespace", ""))
            result = await self._view.see_async(tree)
            if result.object is not None:
                transition = self._transition(type_, metadata)
                if transition is not None:
                    sent = transition
                    rows.append(await self._table.with_cells(row, result))
            elif self._was_visible(metadata):
                sent = "DELETED"
                rows.append(self._table.of_hidden(rest_of_hidden(tree, self._view)))
        if not rows:
            return None
        # Only the first event has column definitions. If it is dropped, the next one carries them.
        columns, self._columns = self._columns, None
        return encode({"type": sent, "object": document | {"columnDefinitions": columns, "rows": rows}}) + b"\n"


def _object_in(frame: bytes | memoryview) -> JSONObject:
    try:
        return _decode(_decode_raw(frame).object)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_gateway(f"the API server sent a malformed watch event: {error}") from None


def _retyped(type_: str, frame: bytes | memoryview) -> bytes:
    """Return a frame with another type. Its object's bytes stay."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), bytes(_decode_raw(frame).object))


def rest_of_hidden(tree: JSONObject, view: ClientView) -> JSONObject:
    """Return the part of a hidden object that tells a client which object it must forget."""
    metadata = tree.get("metadata") or {}
    kept = {name: metadata[name] for name in _OF_HIDDEN if name in metadata}
    if "ownerReferences" in metadata and not view.selection.may_change_path("metadata", "ownerReferences"):
        kept["ownerReferences"] = metadata["ownerReferences"]  # controllers find the owner of a deleted object by them
    return {"kind": tree.get("kind", ""), "apiVersion": tree.get("apiVersion", ""), "metadata": kept}
