"""Injects faults into a server's streams: cut in the middle, expired, or without some of their events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TypeAlias

import msgspec

from kubeloop.endpoints import api_errors
from kubeloop.endpoints.encoding import encode, event_frame
from kubeloop.endpoints.responses import status_answer
from kubeloop.tasks import end_tasks

#: Whether a change with this version is hidden from a stream.
Hidden: TypeAlias = Callable[[int], bool]

#: Chunks that are buffered before they are sent.
_AHEAD = 32
_BOOKMARK = b'{"type":"BOOKMARK",'
_CHANGES = (b'{"type":"ADDED",', b'{"type":"MODIFIED",', b'{"type":"DELETED",')


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Frame(msgspec.Struct, frozen=True):
    object: _Object


class FaultInjectedStream:
    """Applies faults to one stream.

    ``after`` is the number of lines after which the stream is cut; None: it is not cut. ``repeat_bookmarks`` returns whether bookmarks are
    sent twice. ``hidden`` returns the function that decides which changes are hidden, or None if all are shown.
    """

    def __init__(self, repeat_bookmarks: Callable[[], bool], hidden: Callable[[], Hidden | None], after: int | None = None) -> None:
        self._happened = False
        self._last: bytes | None = None
        self._read: deque[bytes] = deque()
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._repeat_bookmarks = repeat_bookmarks
        self._hidden = hidden
        self._after = after

    def cut(self) -> None:
        """Break the stream off, without an end."""
        self._happened = True
        self._news.set()

    def expire(self) -> None:
        """Send 410 (the version is too old), and end the stream."""
        expired = status_answer(api_errors.gone("too old resource version: 1 (2)").status)
        self._last = event_frame("ERROR", encode(expired.object))
        self._happened = True
        self._news.set()

    async def of(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield ``chunks`` with the faults applied."""
        source = aiter(chunks)
        reading = asyncio.create_task(self._read_ahead(source))
        reading.add_done_callback(lambda _: self._news.set())
        try:
            while True:
                if self._after == 0:
                    raise _cut()
                chunk = await self._following(reading)
                if self._happened:
                    if self._last is None:
                        raise _cut()
                    yield self._last
                    return
                if chunk is None:
                    return
                for piece in self._shown(chunk):
                    yield piece
        finally:
            await end_tasks(reading, expected=(Exception,))  # ``_following`` raises it
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()

    async def _read_ahead(self, source: AsyncIterator[bytes]) -> None:
        # Several at once: one turn of the event loop for each would make a stream of thousands of objects take minutes on a busy machine.
        async for chunk in source:
            self._read.append(chunk)
            self._news.set()
            while len(self._read) >= _AHEAD:
                self._room.clear()
                await self._room.wait()

    async def _following(self, reading: asyncio.Task[None]) -> bytes | None:
        """Wait for the next chunk and return it; return None at the end of the stream, and after ``cut`` or ``expire``."""
        while not (self._happened or self._read or reading.done()):
            self._news.clear()
            await self._news.wait()
        if self._happened:
            return None
        if self._read:
            self._room.set()
            return self._read.popleft()
        reading.result()
        return None

    def _shown(self, chunk: bytes) -> list[bytes]:
        hidden = self._hidden()
        if self._after is None and hidden is None:
            return [chunk, chunk] if self._repeat_bookmarks() and chunk.startswith(_BOOKMARK) else [chunk]
        lines = chunk.splitlines(keepends=True)
        if hidden is not None:
            lines = [line for line in lines if not (line.startswith(_CHANGES) and hidden(_version(line)))]
        if self._after is not None:
            lines = lines[: self._after]
            self._after -= len(lines)
        return lines


def _version(frame: bytes) -> int:
    return int(msgspec.json.decode(frame, type=_Frame).object.metadata.resource_version or 0)


def _cut() -> ConnectionResetError:
    return ConnectionResetError("cut by a test")
