"""Watches of a history: each reads the log at a position of its own, and is woken when there is more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from kubeloop.apiserver.storage.history import History
from kubeloop.apiserver.storage.protocol import Event


class Streams:
    """The watches of one storage."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._open: set[Stream] = set()

    def stream(self, prefix: str, start_revision: int) -> Stream:
        return Stream(self, prefix, start_revision)

    def wake(self) -> None:
        """There is more to read, or what some have not read is gone."""
        for one in self._open:
            one.wake()

    def end(self) -> None:
        for one in self._open:
            one.end()

    def register(self, stream: Stream) -> None:
        self._open.add(stream)

    def unregister(self, stream: Stream) -> None:
        self._open.discard(stream)


class Stream:
    """Implements ``WatchStream``; holds no events."""

    __slots__ = ("_ended", "_next", "_prefix", "_ready", "_streams")

    def __init__(self, streams: Streams, prefix: str, start_revision: int) -> None:
        self._streams = streams
        self._prefix = prefix
        self._next = start_revision
        self._ready = asyncio.Event()
        self._ended = False

    def wake(self) -> None:
        self._ready.set()

    def end(self) -> None:
        self._ended = True
        self._ready.set()

    async def __aenter__(self) -> Self:
        self._streams.register(self)
        self._ready.set()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._streams.unregister(self)

    async def __aiter__(self) -> AsyncIterator[list[Event]]:
        while not self._ended:
            await self._ready.wait()
            self._ready.clear()
            found, self._next = self._streams.history.events(self._prefix, self._next)
            if found:
                yield found
