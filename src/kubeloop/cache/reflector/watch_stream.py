"""Watch stream: one watch request while it is open. It cuts frames and notices silence; it does not know what frames say."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from typing import cast

from kubeloop.cache.reflector.stall_detection import GRACE, BookmarkInterval, Watchdog
from kubeloop.codec.frames import FrameCutter
from kubeloop.timing import Clock
from kubeloop.transport import Stream

Take = Callable[[list[memoryview]], int | None]
"""Uses frames; answers how many if it wants no more for now, None to go on."""


class WatchStream:
    """Reads frames in phases: everything at first, then what changes, over one connection.

    Guarantees
        Frames come in order, each once; those that a phase does not use wait for the next. ``close`` frees the socket, always.

    Raises
        ApiError, TransportError: from ``open`` and ``read``. WatchStalled: it was abandoned. DecodeError: a frame without end.
    """

    def __init__(self, request: AbstractAsyncContextManager[Stream], clock: Clock, seconds: int) -> None:
        """``seconds``: the ``timeoutSeconds`` that were asked for."""
        self._request = request
        self._clock = clock
        self.seconds = seconds
        self.began = clock.now()
        #: Events so far, bookmarks too, and the last version seen; kept by those who read.
        self.events = 0
        self.version = ""
        self._end = self.began + seconds + GRACE
        self._rhythm = BookmarkInterval()
        self._cutter = FrameCutter()
        self._waiting: list[memoryview] = []
        self._stack = AsyncExitStack()
        self._chunks: AsyncGenerator[bytes] | None = None
        self._watchdog: Watchdog | None = None

    @property
    def lasted(self) -> float:
        return self._clock.now() - self.began

    async def open(self, limit: float | None = None) -> None:
        """Until the server answers; within ``limit`` seconds, if given."""
        async with Watchdog(self._clock, lambda: limit, self._silence, self._end).attend():
            stream = await self._stack.enter_async_context(self._request)
        chunks = cast("AsyncGenerator[bytes]", stream.chunks())
        self._chunks = await self._stack.enter_async_context(aclosing(chunks))

    async def read(self, take: Take, limit: float | None = None) -> bool:
        """Hand frames over, in batches as they come, until ``take`` has enough (True) or the server ends the stream (False).

        ``limit``: seconds of silence that are too many; None leaves it to the rhythm of the bookmarks.
        """
        assert self._chunks is not None
        allowed = (lambda: self._rhythm.limit) if limit is None else (lambda: limit)
        watchdog = self._watchdog = Watchdog(self._clock, allowed, self._silence, self._end)
        async with watchdog.attend():
            if self._waiting and self._used(take, self._waiting):
                return True
            feed = self._cutter.feed
            async for chunk in self._chunks:
                watchdog.heard()
                frames = feed(chunk)
                if frames and self._used(take, frames):
                    return True
        return False

    def _used(self, take: Take, frames: list[memoryview]) -> bool:
        used = take(frames)
        self._waiting = [] if used is None else frames[used:]
        return used is not None

    def bookmark(self) -> None:
        """One came: the next is expected."""
        before = self._rhythm.limit
        self._rhythm.bookmark(self._clock.now())
        if self._watchdog is not None and self._rhythm.limit != before:
            self._watchdog.look()

    async def close(self) -> None:
        """May be called twice."""
        self._chunks = None
        self._waiting = []
        await self._stack.aclose()

    def _silence(self) -> str:
        if self._clock.now() >= self._end:
            return f"the watch outlived its {self.seconds} s: abandoned"
        return f"nothing came from the server after {self.lasted:.0f} s and {self.events} events: abandoned"
