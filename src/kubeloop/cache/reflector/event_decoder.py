"""Decodes the objects and frames that a server sends, and reports malformed ones. It makes no decision about requests.

A malformed object does not affect others: it is skipped and logged, or repaired where the standard Kubernetes clients repair it too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from kubeloop.cache.blobs.head import Head, HeadReader
from kubeloop.codec.projection import Projected, Projection
from kubeloop.meta import ApiError, DecodeError, Status
from kubeloop.meta.unstructured import BookmarkObject
from kubeloop.transport import logger_with_context


class ReflectorStore(Protocol):
    """Receives the objects of a list and watch. All methods are called on the event loop, and must not block."""

    @property
    def reader(self) -> HeadReader:
        """The reader that makes heads. It may change between two calls, because indexes can be added while events arrive."""

    def before(self, namespace: str, name: str) -> Head | None:
        """Return the cached state of an object, or None."""

    def begin_list(self) -> None:
        """Called when a list begins."""

    def replace(self, heads: list[Head], version: str) -> None:
        """Replace the content with a complete list."""

    def change(self, head: Head) -> None:
        """Apply an added or modified object."""

    def remove(self, head: Head) -> None:
        """Apply the deletion of an object."""

    def bookmark(self, version: str) -> None:
        """Record that there are no further changes up to this version."""

    def flush(self) -> None:
        """Apply the changes since the last flush: the batch is complete."""

    def watching(self) -> None:
        """Called when the server has accepted a watch. (Its first event may still be an error.)"""

    def waiting(self, reason: str) -> None:
        """Called when the first state is late although no request has failed. ``reason`` is a text for people."""

    def failed(self, error: Exception) -> None:
        """Called when a request has failed. It will be retried."""


_LOG = logger_with_context("kubeloop.cache")
_read_bookmark = msgspec.json.Decoder(BookmarkObject).decode
_is_json = msgspec.json.Decoder(msgspec.Raw).decode

Item = tuple[Projected | None, memoryview | bytes]
"""A list item and its bytes. The item is None if it is not an object."""


class ErrorEvent(Exception):
    """The server ended a watch with an ERROR event."""

    def __init__(self, error: ApiError) -> None:
        self.error = error


class EventDecoder:
    """Decodes the objects and events for one cache.

    Outcomes of bad input
        Another kind (also a ``Table``), or no name: skipped and logged as an error; the version does not advance.
        Invalid UTF-8: replaced by U+FFFD, as Go's decoder does, and logged.
        A list item that is not an object; an event whose object is nested too deeply for the parser: skipped and logged. Up to Python 3.12
        that is about 1,000 levels, in 3.13 some 10,000. From 3.14 on the parser skips any depth; reading the object raises NestedTooDeeply.
        A frame that is not an event: ``DecodeError``, since the stream may be out of step. The same for a list with an item nested too
        deeply. An ERROR event: ``ErrorEvent``.
    """

    def __init__(self, description: str) -> None:
        """Make a decoder. ``description`` names the objects in logs, such as ``pods in namespace "shop"``."""
        self._description = description

    # ---------------------------------------------------------------------------------------------------------------- list items

    def item_reader(self, projection: Projection) -> Callable[[memoryview], Item]:
        """Return a function that decodes an item of a list."""

        def read(document: memoryview) -> Item:
            try:
                return projection.object(document), document
            except (DecodeError, UnicodeDecodeError, RecursionError) as error:
                try:
                    _is_json(document)
                except msgspec.DecodeError:
                    raise DecodeError("not a whole item") from None
                if isinstance(error, UnicodeDecodeError):
                    repaired = self._repaired(document)
                    return projection.object(repaired), repaired
                _LOG.error("%s: skipped a list item that is not an object: %s", self._description, error)
                return None, document

        return read

    def listed(self, projected: Projected, document: memoryview | bytes, reader: HeadReader, store: ReflectorStore) -> Head | None:
        """Return the head of a listed or streamed object; the cache's own head if it is the same state.

        The contents are compared too: behind a proxy, whose rules have changed, an object has other contents with the same version.


        Args:
            projected: The decoded metadata of the object.
            document: The whole object as JSON.
            reader: Makes the head.
            store: Holds the current state of the object.

        Returns:
            The head, or None if the object is malformed; that is logged.
        """
        metadata = projected.metadata
        if (projected.kind and not reader.keeper.expects(projected)) or not metadata.name:
            self.skip(projected)
            return None
        before = store.before(metadata.namespace, metadata.name)
        if (
            before is not None
            and before.resource_version == metadata.resource_version
            and metadata.resource_version
            and before.uid == metadata.uid
            and reader.is_current(before)
            and reader.is_stored(before, projected, document)
        ):
            return before
        try:
            return reader.head(projected, memoryview(document), before)
        except UnicodeDecodeError:
            repaired = self._repaired(document)
            return reader.head(reader.projection.object(repaired), memoryview(repaired), before)

    # -------------------------------------------------------------------------------------------------------------------- frames

    def repaired(self, frame: memoryview, error: Exception) -> memoryview | None:
        """Return a readable version of a frame that raised this error; None if the frame must be skipped."""
        if isinstance(error, UnicodeDecodeError):
            return memoryview(self._repaired(frame))
        _LOG.error("%s: skipped an event whose object is nested too deeply (%d bytes)", self._description, len(frame))
        return None

    def _repaired(self, document: memoryview | bytes) -> bytes:
        _LOG.error("%s: the server sent invalid UTF-8, replaced by U+FFFD, in an object of %d bytes", self._description, len(document))
        return bytes(document).decode("utf-8", "replace").encode()

    def skip(self, projected: Projected) -> None:
        name = projected.metadata.name or "without a name"
        api_version, kind = projected.api_version or "no apiVersion", projected.kind or "none"
        _LOG.error("%s: skipped an object of %s, Kind=%s (%s)", self._description, api_version, kind, name)


def ends_initial_events(document: memoryview) -> bool:
    """Return whether a bookmark ends the initial events: its annotation ``k8s.io/initial-events-end`` is "true" (KEP-3157)."""
    # Behaviour C33.
    try:
        return _read_bookmark(document).ends_initial_events
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def error_event(document: memoryview) -> ErrorEvent | DecodeError:
    """Return the exception for the Status in an ERROR event, or ``DecodeError`` if the event has no Status."""
    try:
        return ErrorEvent(ApiError.from_status(msgspec.json.decode(document, type=Status), "watch"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return DecodeError(f"an ERROR event without a Status: {error}")
