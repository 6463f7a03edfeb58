"""The recent changes of one resource in a ring of bounded size, from which watches continue."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kubeloop.cache.blobs.head import Head
from kubeloop.endpoints.encoding import encode
from kubeloop.types import JSONObject

#: Maximum number of changes, and of bytes of the compressed states in them.
MAX_EVENTS: Final = 16_384
MAX_BYTES: Final = 32 << 20
#: Number of the newest changes whose encoded frames are cached.
FRAMES: Final = 64

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class CachedEvent:
    """One change of an object, shared by all watches.

    Args:
        version: The resourceVersion of the change.
        before: The previous state; None for a new object.
        state: The new state. For a deletion, the last state with the version of the deletion; ``before`` itself, if the API server has
            not sent that state.
        deleted: The object was deleted.
    """

    __slots__ = ("_frames", "before", "deleted", "state", "version")

    def __init__(self, version: int, before: Head | None, state: Head, *, deleted: bool = False) -> None:
        self.version = version
        self.before = before
        self.state = state
        self.deleted = deleted
        self._frames: dict[str, bytes] | None = {}

    @property
    def size(self) -> int:
        """Bytes of the compressed states."""
        return self.state.stored_bytes

    def frame(self, type_: str) -> bytes:
        """Return the frame of the new state, as the API server sends it."""
        frames = self._frames
        frame = frames.get(type_) if frames is not None else None
        if frame is None:
            frame = b'{"type":"%b","object":%b}\n' % (type_.encode(), self.document())
            if frames is not None:
                frames[type_] = frame
        return frame

    def document(self) -> bytes:
        """Return the new state as JSON."""
        return encode(self.previous()) if self.state is self.before else self.state.document()

    def previous(self) -> JSONObject:
        """Return the previous state with the version of the change, as the API server shows an object that stops matching a selector."""
        assert self.before is not None
        tree: JSONObject = _decode(self.before.document())
        metadata: JSONObject = tree["metadata"]
        metadata["resourceVersion"] = str(self.version)
        return tree

    def previous_frame(self) -> bytes:
        """Return the frame that deletes the object for a client whose selector it no longer matches."""
        frames = self._frames
        frame = frames.get("") if frames is not None else None
        if frame is None:
            frame = b'{"type":"DELETED","object":%b}\n' % encode(self.previous())
            if frames is not None:
                frames[""] = frame
        return frame

    def forget_frames(self) -> None:
        """Drop the cached frames, and cache none from now on."""
        self._frames = None


class EventLog:
    """The recent changes of a resource, oldest first. Each has a position, which counts all changes from the start of the cache.

    Guarantees
        The log has every change of the resource after ``oldest``. Its size is bounded; the oldest changes are dropped.

    Example:
        >>> log = EventLog()
        >>> log.restart(7)
        >>> log.after(7)
        0
    """

    def __init__(self, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._events: list[CachedEvent] = []
        self._versions: list[int] = []
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._bytes = 0
        #: Position of the oldest change in the log, and of the next change that arrives.
        self.begin = 0
        self.end = 0
        #: The log has the changes after this version.
        self.oldest = 0

    def restart(self, version: int) -> None:
        """Drop all changes: the log begins after ``version``."""
        self._events.clear()
        self._versions.clear()
        self._bytes = 0
        self.begin = self.end
        self.oldest = version

    def append(self, event: CachedEvent) -> None:
        """Add the newest change."""
        self._events.append(event)
        self._versions.append(event.version)
        self._bytes += event.size
        self.end += 1
        if len(self._events) > FRAMES:
            self._events[-FRAMES - 1].forget_frames()
        # Dropped in batches, since the front of a list is removed in linear time.
        if len(self._events) > self._max_events + self._max_events // 8 + 1:
            self._drop(len(self._events) - self._max_events)
        while self._bytes > self._max_bytes and len(self._events) > 1:
            self._drop(max(len(self._events) // 8, 1))

    def after(self, version: int) -> int | None:
        """Return the position of the first change after a version; None if the log no longer has all changes after it."""
        if version < self.oldest:
            return None
        return self.begin + bisect_right(self._versions, version)

    def since(self, position: int, limit: int | None = None) -> Sequence[CachedEvent]:
        """Return the changes from a position on, which must not be before ``begin``; at most ``limit`` of them."""
        start = position - self.begin
        return self._events[start:] if limit is None else self._events[start : start + limit]

    def deleted_after(self, namespace: str, name: str, version: int) -> bool:
        """Return whether the log has a deletion of an object after a version."""
        start = bisect_right(self._versions, version)
        return any(event.deleted and event.state.name == name and event.state.namespace == namespace for event in self._events[start:])

    def _drop(self, number: int) -> None:
        self.oldest = self._versions[number - 1]
        self._bytes -= sum(event.size for event in self._events[:number])
        del self._events[:number]
        del self._versions[:number]
        self.begin += number
