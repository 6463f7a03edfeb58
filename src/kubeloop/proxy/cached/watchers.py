"""One watch of a client: the state first, if wanted, then events and bookmarks until its time is over."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from kubeloop.endpoints import api_errors
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.proxy.cached.queries import ReadQuery
from kubeloop.proxy.cached.watch_group import AT_ONCE, EventFailed, FellBehind, WatchGroup
from kubeloop.proxy.continuity import rules_changed
from kubeloop.proxy.encodings import Form, event_frame, shaped
from kubeloop.serving.answer import FrameWriter
from kubeloop.timing import Clock, Timer
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.proxy.cached.resource import CachedResource

#: Seconds between bookmarks, as of a kube-apiserver (k8s.io/apiserver pkg/storage/cacher, defaultBookmarkFrequency), with a random part.
BOOKMARKS: Final = 60.0
_JITTER: Final = 0.25
#: Seconds of a watch without timeoutSeconds: between these (kube-apiserver's --min-request-timeout, and twice it).
_TIMEOUT: Final = (1800, 3600)


class CachedWatch:
    """A watch that is answered from the cache. ``run`` writes its frames; the group delivers events between the waits of ``run``.

    Cost
        About 1 KiB besides the connection. A client that does not read has no queue: it is behind in the log, and is cut off when the log
        no longer has its position.

    Args:
        resource: The cache.
        group: The watches that see the same.
        query: The parameters.
        clock: Measures bookmarks and the end.
        rng: Spreads bookmarks and ends.
    """

    def __init__(self, resource: CachedResource, group: WatchGroup, query: ReadQuery, clock: Clock, rng: random.Random) -> None:
        self._resource = resource
        self._group = group
        self._query = query
        self._clock = clock
        self._rng = rng
        self._writer: FrameWriter | None = None
        self._wake: asyncio.Future[None] | None = None
        self._timer: Timer | None = None
        self._end = clock.now() + (query.timeout or rng.uniform(*_TIMEOUT))
        #: The watch ends without an error, after an error frame of ``_expired``, or without one because the client is too slow.
        self._ended = False
        self._expired: ApiError | None = None
        self._gone = False
        self._sent = 0
        objects = resource.objects
        begin = objects.log.after(query.version) if query.resumes else objects.log.end
        self._position = begin if begin is not None else -1
        resource.add(self, group)

    @property
    def group(self) -> WatchGroup:
        """The watches that see the same."""
        return self._group

    def close(self) -> None:
        """Leave the cache. A second call does nothing."""
        self._resource.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def expire(self, error: ApiError | None = None) -> None:
        """End the watch with an error; by default 410, because the rules have changed."""
        self._expired = error or rules_changed()
        self._resume()

    # ------------------------------------------------------------------------------------------------------------- writing

    async def run(self, writer: FrameWriter) -> None:
        """Write the frames of the watch until it ends.

        Raises:
            OSError: The client has disconnected.
        """
        self._writer = writer
        try:
            if self._query.resumes and self._position < 0:
                log = self._resource.objects.log
                await self._write(self._group.error_frame(api_errors.too_old(self._query.version, log.oldest)))
                return
            self._schedule()
            if self._query.resumes:
                await self._until_version()
            else:
                await self._initial()
            while not self._over():
                await self._catch_up()
                if self._over():
                    break
                self._wake = asyncio.get_running_loop().create_future()
                self._group.idle[self] = None
                try:
                    await self._wake
                finally:
                    self._group.idle.pop(self, None)
                    self._wake = None
                await writer.drained()
            if self._expired is not None:
                await self._write(self._group.error_frame(self._expired))
        finally:
            self.close()

    def deliver(self) -> None:
        """Write the events that the client has not got, if it reads; otherwise let ``run`` do it."""
        writer = self._writer
        if writer is None or self not in self._group.idle:
            return  # it has ended, or continues by itself, since it was chosen to be written to
        try:
            while self._position < self._group.evaluated:
                batch = self._group.read(self._position)
                if batch.frames and not writer.push(batch.encoded(writer)):
                    self._resume()
                    return
                self._position = batch.end
        except (FellBehind, EventFailed):
            self._resume()

    async def _catch_up(self) -> None:
        """Write the events that the client has not got."""
        assert self._writer is not None
        try:
            while not self._over():
                batch = self._group.read(self._position)
                if batch.end == self._position:
                    return
                self._position = batch.end
                if batch.frames:
                    await self._writer.write(batch.encoded(self._writer))
                else:
                    await asyncio.sleep(0)  # changes that the client does not see were read from the log
        except FellBehind:
            self._gone = True  # as a kube-apiserver, which ends the watch; the client resumes, and then gets 410
        except EventFailed as failure:
            self._expired = failure.error

    async def _until_version(self) -> None:
        """Wait until the cache has reached the version after which the client wants events, which may be that of another read."""
        objects, version = self._resource.objects, self._query.version
        if version > objects.version:
            await objects.wait(self._clock, self._end - self._clock.now(), lambda: objects.version >= version or self._over())
            position = objects.log.after(version)
            self._position = objects.log.end if position is None else position

    async def _initial(self) -> None:
        """Write the objects as ADDED events, and their end, if the client wants it."""
        parts: list[bytes] = []
        size = 0
        objects, frame_of = self._resource.objects, self._group.initial_frame
        version, self._position = objects.version, objects.log.end
        for number, head in enumerate(objects.snapshot()):
            try:
                frame = frame_of(head)
            except ApiError as error:
                self._expired = error
                break
            if frame is not None:
                if parts and size + len(frame) > AT_ONCE:
                    await self._write(b"".join(parts))
                    parts.clear()
                    size = 0
                parts.append(frame)
                size += len(frame)
            if number % 256 == 255:
                await asyncio.sleep(0)
            if self._over():
                break
        if self._query.initial_events and not self._over():
            parts.append(bookmark_frame(self._resource.kind, version, self._query.form, ends_initial_events=True))
        if parts:
            await self._write(b"".join(parts))

    async def _write(self, frames: bytes) -> None:
        assert self._writer is not None
        await self._writer.write(self._writer.encode(frames))

    # -------------------------------------------------------------------------------------------------------- time and end

    def _over(self) -> bool:
        return self._ended or self._gone or self._expired is not None

    def _schedule(self) -> None:
        left = self._end - self._clock.now()
        if self._query.bookmarks:
            left = min(left, BOOKMARKS * (1 + _JITTER * self._rng.random()))
        self._timer = self._clock.call_later(max(left, 0.0), self._tick)

    def _tick(self) -> None:
        """Write a bookmark, or end the watch."""
        if self._clock.now() >= self._end:
            self._ended = True
            self._resume()
            return
        if self in self._group.idle:
            self._bookmark()
        self._schedule()

    def _bookmark(self) -> None:
        objects, writer = self._resource.objects, self._writer
        assert writer is not None
        self.deliver()
        if self not in self._group.idle:
            return  # the client does not have every event up to the version of the cache
        if objects.version > max(self._sent, self._query.version if self._query.resumes else 0):
            self._sent = objects.version
            writer.push(writer.encode(bookmark_frame(self._resource.kind, objects.version, self._query.form)))

    def _resume(self) -> None:
        """Let ``run`` continue."""
        self._group.idle.pop(self, None)
        if self._wake is None:
            self._resource.objects.wake()  # it may wait for a version
        elif not self._wake.done():
            self._wake.set_result(None)


def bookmark_frame(kind: GroupVersionKind, version: int, form: Form, *, ends_initial_events: bool = False) -> bytes:
    """Return a bookmark as a frame.

    Args:
        kind: The kind of the objects.
        version: The resourceVersion.
        form: Objects or metadata.
        ends_initial_events: The initial events of the watch are complete (KEP-3157).
    """
    metadata: dict[str, object] = {"resourceVersion": str(version)}
    if ends_initial_events:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    api_version = f"{kind.group}/{kind.version}" if kind.group else kind.version
    tree: JSONObject = {"kind": kind.kind, "apiVersion": api_version, "metadata": metadata}
    return event_frame("BOOKMARK", shaped(tree, form), form)


async def pulled_frames(watch: CachedWatch) -> AsyncIterator[bytes]:
    """Yield the frames of a watch, for servers that do not push."""
    async with aclosing(_PulledFrames(watch).drain()) as drained:
        async for frames in drained:
            yield frames


class _PulledFrames:
    """A writer whose frames are read as an iterator."""

    chunked = False

    def __init__(self, watch: CachedWatch) -> None:
        self._watch = watch
        self._frames: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._read = asyncio.Event()

    def encode(self, frame: bytes) -> bytes:
        return frame

    def push(self, encoded: bytes) -> bool:
        if self._frames:
            return False
        self._frames.append(encoded)
        self._changed.set()
        return True

    async def write(self, encoded: bytes) -> None:
        self._frames.append(encoded)
        self._changed.set()
        await self.drained()

    async def drained(self) -> None:
        while self._frames:
            self._read.clear()
            await self._read.wait()

    async def drain(self) -> AsyncGenerator[bytes, None]:
        """Yield the frames until the watch ends."""
        work = asyncio.ensure_future(self._watch.run(self))
        work.add_done_callback(lambda _: self._changed.set())
        try:
            while True:
                while self._frames:
                    frame = self._frames.popleft()
                    if not self._frames:
                        self._read.set()
                    yield frame
                if work.done():
                    work.result()
                    return
                self._changed.clear()
                await self._changed.wait()
        finally:
            work.cancel()
            self._watch.close()
