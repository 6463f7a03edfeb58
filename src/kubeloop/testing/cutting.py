"""Streams of a server under a test's command: cut in the middle, told that they expired, or without some of their events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TypeAlias

import msgspec

from kubeloop.apiserver import refusals
from kubeloop.apiserver.answers import status_answer
from kubeloop.apiserver.encoding import encode, event_frame

#: Whether a change of this version is kept from a stream.
Hidden: TypeAlias = Callable[[int], bool]

_BOOKMARK = b'{"type":"BOOKMARK",'
_CHANGES = (b'{"type":"ADDED",', b'{"type":"MODIFIED",', b'{"type":"DELETED",')


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Frame(msgspec.Struct, frozen=True):
    object: _Object


class CommandedStream:
    """One stream. ``after``: it is cut when so many of its lines have gone out. ``hidden`` says of a change's version that it is not shown;
    without one, and without ``after``, streams of any format pass as they are."""

    def __init__(self, repeat_bookmarks: Callable[[], bool], hidden: Callable[[], Hidden | None], after: int | None = None) -> None:
        self._happened = asyncio.Event()
        self._last: bytes | None = None
        self._repeat_bookmarks = repeat_bookmarks
        self._hidden = hidden
        self._after = after

    def cut(self) -> None:
        """Break off, without an end."""
        self._happened.set()

    def expire(self) -> None:
        """Say that the version is too old (410), and end."""
        expired = status_answer(refusals.gone("too old resource version: 1 (2)").status)
        self._last = event_frame("ERROR", encode(expired.object))
        self._happened.set()

    async def of(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """``chunks`` as they go out."""
        source = aiter(chunks)
        try:
            while True:
                if self._after == 0:
                    raise _cut()
                chunk = await self._following(source)
                if self._happened.is_set():
                    if self._last is None:
                        raise _cut()
                    yield self._last
                    return
                if chunk is None:
                    return
                for piece in self._shown(chunk):
                    yield piece
        finally:
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()

    async def _following(self, source: AsyncIterator[bytes]) -> bytes | None:
        """None at the end; whatever was cut meanwhile."""
        following = asyncio.ensure_future(anext(source, None))
        breaking = asyncio.ensure_future(self._happened.wait())
        try:
            await asyncio.wait((following, breaking), return_when=asyncio.FIRST_COMPLETED)
        finally:
            breaking.cancel()
            if not following.done():
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
        return None if self._happened.is_set() else following.result()

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
