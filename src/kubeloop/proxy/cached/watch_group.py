"""Watches that see the same events: each event is evaluated and encoded once for all of them."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any, Final, Protocol

import msgspec

from kubeloop.cache.blobs.head import Head
from kubeloop.endpoints.responses import status_object
from kubeloop.meta.errors import ApiError
from kubeloop.proxy.cached.event_log import CachedEvent, EventLog
from kubeloop.proxy.cached.queries import ObjectMatcher
from kubeloop.proxy.encodings import Form, event_frame, shaped
from kubeloop.proxy.rules import Examination, HeadMetadata
from kubeloop.proxy.view import ClientView
from kubeloop.proxy.watches import rest_of_hidden
from kubeloop.serving.answer import FrameWriter
from kubeloop.types import JSONObject

#: Maximum bytes of the frames that a watcher gets at once, unless one frame is larger. OpenSSL's buffer of a connection has the size of
#: the largest write, and never shrinks.
AT_ONCE: Final = 16 << 10
#: Maximum bytes of encoded frames that wait for the watchers of a group; for slower watchers they are encoded again.
_WAITING: Final = 1 << 20
#: Changes that are read at once from the log for a slow watcher.
_SLICE: Final = 64

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class FellBehind(Exception):
    """The log no longer has the changes that a watcher has not read."""


class EventFailed(Exception):
    """A rule failed on the next event: the watch ends with this error."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(str(error))
        self.error = error


class Batch:
    """Frames for the watchers at one position.

    Attributes:
        frames: The frames; empty if the clients get none.
        end: The position after them.
    """

    __slots__ = ("_chunk", "end", "frames")

    def __init__(self, frames: bytes, end: int) -> None:
        self.frames = frames
        self.end = end
        self._chunk = b""

    def encoded(self, writer: FrameWriter) -> bytes:
        """Return the frames as a connection transfers them, encoded once for all connections."""
        if not writer.chunked:
            return self.frames
        if not self._chunk:
            self._chunk = writer.encode(self.frames)
        return self._chunk


class GroupMember(Protocol):
    """A watcher in a group."""

    @property
    def group(self) -> WatchGroup:
        """Its group."""

    def deliver(self) -> None:
        """Write the events that the watcher has not got."""


class WatchGroup:
    """The watches of one resource with the same rules, selectors and form.

    Guarantees
        Its events keep the list of a client right: an object is ADDED when it begins to match, and DELETED when it stops.
        A deletion has the previous state of an object that stops matching the selector, and only the identity of a hidden object.

    Args:
        log: The changes of the resource.
        matcher: The objects that the selectors select.
        view: What the client sees of objects; None: every object unchanged.
        previous: A view like ``view``, for previous states, whose effects are not counted again.
        form: Objects or metadata.
    """

    def __init__(self, log: EventLog, matcher: ObjectMatcher, view: ClientView | None, previous: ClientView | None, form: Form) -> None:
        self.matcher = matcher
        self.form = form
        self.view = view
        self._previous = previous
        self._log = log
        #: The watchers that have got every event, and wait for the next one.
        self.idle: dict[GroupMember, None] = {}
        #: Number of watchers.
        self.watchers = 0
        self._frames: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        #: The error of a rule that failed. It ends all watches of the group.
        self.failure: ApiError | None = None
        #: Frames of changes up to this position are dropped, or were never encoded: the group began after them.
        self._dropped = log.end - 1
        self._batches: dict[int, Batch] = {}
        #: Position up to which the changes are evaluated.
        self.evaluated = log.end

    # --------------------------------------------------------------------------------------------------------- distribution

    def evaluate(self) -> bool:
        """Evaluate the new changes of the log. Return whether the watchers get an event."""
        position = max(self.evaluated, self._log.begin)
        found = False
        for event in self._log.since(position):
            try:
                frame = self.frame(event)
            except ApiError as error:
                self.failure = self.failure or error
                position, found = self._log.end, True
                break
            if frame is not None:
                self._frames.append((position, frame))
                self._bytes += len(frame)
                found = True
            position += 1
        self.evaluated = position
        self._batches.clear()
        while self._bytes > _WAITING and len(self._frames) > 1:
            self._drop()
        return found

    def settle(self) -> None:
        """Drop the frames that every idle watcher has got."""
        while self._frames:
            self._drop()
        self._batches.clear()

    def read(self, position: int) -> Batch:
        """Return the frames from a position on, at most about ``AT_ONCE`` bytes. At ``position`` itself ends a batch without any.

        Args:
            position: Where the watcher is.

        Raises:
            FellBehind: The log no longer has them.
            EventFailed: A rule failed.
        """
        if position >= self.evaluated:
            return Batch(b"", position)
        if position <= self._dropped:
            return self._read_again(position)
        frames = self._frames
        if not frames or position > frames[-1][0]:
            if self.failure is not None:
                raise EventFailed(self.failure)
            return Batch(b"", self.evaluated)
        first = 0 if frames[0][0] >= position else next(number for number, (at, _) in enumerate(frames) if at >= position)
        batch = self._batches.get(frames[first][0])
        if batch is None:
            size, end = 0, self.evaluated
            parts: list[bytes] = []
            for at, frame in islice(frames, first, None):
                if parts and size + len(frame) > AT_ONCE:
                    end = at
                    break
                parts.append(frame)
                size += len(frame)
            else:
                # The next batch is the failure.
                end = at + 1 if self.failure is not None else end
            batch = self._batches[frames[first][0]] = Batch(b"".join(parts), end)
        return batch

    def _read_again(self, position: int) -> Batch:
        """Return frames from the log for a watcher that is slower than the others."""
        if position < self._log.begin:
            raise FellBehind
        size = 0
        parts: list[bytes] = []
        for event in self._log.since(position, _SLICE):
            if position >= self.evaluated:
                break
            try:
                frame = self.frame(event)
            except ApiError as error:
                if parts:
                    break
                raise EventFailed(error) from None
            if frame is not None and parts and size + len(frame) > AT_ONCE:
                break
            position += 1
            if frame is not None:
                parts.append(frame)
                size += len(frame)
        return Batch(b"".join(parts), position)

    def _drop(self) -> None:
        self._dropped, frame = self._frames.popleft()
        self._bytes -= len(frame)

    # ----------------------------------------------------------------------------------------------------------- evaluation

    def frame(self, event: CachedEvent) -> bytes | None:
        """Return the frame of a change for the clients of this group; None if they get none.

        Raises:
            ApiError: 500: a rule failed.
        """
        before, state = event.before, event.state
        selected_before = before is not None and self.matcher(before)
        selected = not event.deleted and self.matcher(state)
        if not selected and not selected_before:
            return None
        if self.view is None:
            return self._unruled(event, selected_before=selected_before, selected=selected)
        tree, changed = self._seen(event) if selected else (None, False)
        if self.view.is_constant and selected and selected_before:
            visible_before = tree is not None
        else:
            visible_before = selected_before and before is not None and self._was_visible(before)
        if tree is not None:
            type_ = "MODIFIED" if visible_before else "ADDED"
            if not changed and not self.form.is_metadata:
                return event.frame(type_)
            return event_frame(type_, shaped(tree, self.form), self.form)
        if not visible_before:
            return None
        if selected:
            return self._rest(_decode(event.document()))
        # The API server shows the last state of a deleted object, and of an object that no longer matches the selector.
        last = _decode(event.document()) if event.deleted else event.previous()
        result = self.view.see(last)
        if result.object is None:
            return self._rest(last)
        if not result.changed and not self.form.is_metadata:
            return event.frame("DELETED") if event.deleted else event.previous_frame()
        return event_frame("DELETED", shaped(result.object, self.form), self.form)

    def initial_frame(self, head: Head) -> bytes | None:
        """Return the frame that adds an object at the begin of a watch; None if the client does not get it.

        Raises:
            ApiError: 500: a rule failed.
        """
        return None if not self.matcher(head) else self.frame(CachedEvent(int(head.resource_version), None, head))

    def error_frame(self, error: ApiError) -> bytes:
        """Return the frame that ends a watch with an error."""
        return event_frame("ERROR", status_object(error.status), self.form)

    def _unruled(self, event: CachedEvent, *, selected_before: bool, selected: bool) -> bytes:
        type_ = "DELETED" if not selected else "MODIFIED" if selected_before else "ADDED"
        if not self.form.is_metadata:
            return event.frame(type_) if selected or event.deleted else event.previous_frame()
        tree = _decode(event.document()) if selected or event.deleted else event.previous()
        return event_frame(type_, shaped(tree, self.form), self.form)

    def _seen(self, event: CachedEvent) -> tuple[JSONObject | None, bool]:
        """Return what the clients see of the new state, and whether rules changed it. An unchanged object may be empty for plain forms."""
        assert self.view is not None
        head = head_metadata(event.state)
        found = self.view.examine(head)
        if found is Examination.HIDDEN:
            self.view.count_hidden(head)
            return None, False
        if found is Examination.UNTOUCHED:
            return (_decode(event.document()) if self.form.is_metadata else {}), False
        result = self.view.see(_decode(event.document()))
        return result.object, result.changed

    def _was_visible(self, head: Head) -> bool:
        view = self._previous
        assert view is not None
        if not view.selection.may_hide and not view.selects:
            return True
        found = view.examine(head_metadata(head))
        if found is Examination.NEEDS_OBJECT:
            return view.see(_decode(head.document())).object is not None
        return found is Examination.UNTOUCHED

    def _rest(self, tree: JSONObject) -> bytes:
        assert self.view is not None
        return event_frame("DELETED", shaped(rest_of_hidden(tree, self.view), self.form), self.form)


def head_metadata(head: Head) -> HeadMetadata:
    """Return a head as rules examine it."""
    return HeadMetadata(head.name, head.namespace, dict(head.labels) or None)
