"""Requests: the lists and watches of one kind and scope. A request is sent when its context is entered."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from typing import Any, cast

import msgspec

from kubeloop.cache.reflector.event_decoder import EventDecoder
from kubeloop.cache.reflector.stall_detection import GRACE, BookmarkInterval, Watchdog
from kubeloop.cache.scope import InformerScope
from kubeloop.client import Client, ListOptions, WatchOptions
from kubeloop.client.options import Match
from kubeloop.codec.frames import FrameSplitter
from kubeloop.codec.list_pages import ListSplitter
from kubeloop.codec.projection import Projected, Projection
from kubeloop.meta import ConfigError, DecodeError
from kubeloop.meta.object_meta import ListMeta
from kubeloop.timing import Clock
from kubeloop.transport import Stream

TakeFrames = Callable[[list[memoryview]], int | None]
"""Processes frames. Returns None to continue, or the number of processed frames to end the phase."""


class ReflectorStream:
    """Reads the frames of one connection in phases: the initial events first, then the changes.

    Guarantees
        Frames come in order, each once; unused frames of a phase wait for the next phase. ``close`` always frees the socket.

    Raises
        ApiError, TransportError: from ``open`` and ``read``. WatchStalled: the server sent nothing for too long. DecodeError: a frame is
        too long.
    """

    def __init__(self, request: AbstractAsyncContextManager[Stream], clock: Clock, seconds: int) -> None:
        """Make an unopened stream. ``seconds``: the requested ``timeoutSeconds``."""
        self._request = request
        self._clock = clock
        self.seconds = seconds
        self.began = clock.now()
        #: Number of events so far, including bookmarks, and the last version seen; updated by the readers.
        self.events = 0
        self.version = ""
        self._end = self.began + seconds + GRACE
        self._bookmarks = BookmarkInterval()
        self._cutter = FrameSplitter()
        self._waiting: list[memoryview] = []
        self._stack = AsyncExitStack()
        self._chunks: AsyncGenerator[bytes] | None = None
        self._watchdog: Watchdog | None = None

    @property
    def lasted(self) -> float:
        return self._clock.now() - self.began

    async def open(self, limit: float | None = None) -> None:
        """Send the request and return when the server responds, within ``limit`` seconds if that is set."""
        async with Watchdog(self._clock, lambda: limit, self._silence, self._end).limit():
            stream = await self._stack.enter_async_context(self._request)
        chunks = cast("AsyncGenerator[bytes]", stream.chunks())
        self._chunks = await self._stack.enter_async_context(aclosing(chunks))

    async def read(self, take: TakeFrames, limit: float | None = None) -> bool:
        """Pass frames to ``take`` in batches. Return True when ``take`` returns a number, or False when the server ends the stream.

        ``limit``: maximum seconds without bytes. If it is None, the limit is derived from the interval of the bookmarks.
        """
        assert self._chunks is not None
        allowed = (lambda: self._bookmarks.limit) if limit is None else (lambda: limit)
        watchdog = self._watchdog = Watchdog(self._clock, allowed, self._silence, self._end)
        async with watchdog.limit():
            if self._waiting and self._used(take, self._waiting):
                return True
            feed = self._cutter.feed
            async for chunk in self._chunks:
                watchdog.heard()
                frames = feed(chunk)
                if frames and self._used(take, frames):
                    return True
        return False

    def _used(self, take: TakeFrames, frames: list[memoryview]) -> bool:
        used = take(frames)
        self._waiting = [] if used is None else frames[used:]
        return used is not None

    def bookmark(self) -> None:
        """Record a bookmark, so that the next one is expected in time."""
        before = self._bookmarks.limit
        self._bookmarks.bookmark(self._clock.now())
        if self._watchdog is not None and self._bookmarks.limit != before:
            self._watchdog.check()

    async def close(self) -> None:
        """Close the connection. Calling it again does nothing."""
        self._chunks = None
        self._waiting = []
        await self._stack.aclose()

    def _silence(self) -> str:
        if self._clock.now() >= self._end:
            return f"the watch outlived its {self.seconds} s: abandoned"
        return f"nothing came from the server after {self.lasted:.0f} s and {self.events} events: abandoned"


#: Seconds without bytes after which a list, or an incomplete streamed list, is abandoned.
SILENCE = 60.0


TakeItem = Callable[[Projected, memoryview | bytes], None]
"""Processes a list item and its bytes. The bytes belong to the page's buffer: copy them to store them."""


async def read_page(
    request: AbstractAsyncContextManager[Stream], decoder: EventDecoder, projection: Projection, take: TakeItem, clock: Clock
) -> ListMeta:
    """Pass the items of a page to ``take`` as they arrive, and return the list's metadata.

    Args:
        request: The request; it is sent here.
        decoder: Reports malformed items.
        projection: The parts of the items to decode.
        take: Called with each item.
        clock: Clock of the time limit.

    Raises:
        ApiError, TransportError: the request was rejected, or the connection broke.
        WatchStalled: no bytes arrived for a minute.
        DecodeError: the response is not a list.
    """
    splitter = ListSplitter(decoder.item_reader(projection))
    watchdog = Watchdog(clock, lambda: SILENCE, lambda: f"nothing came from the server for {SILENCE:g} s; the request was abandoned")
    try:
        async with watchdog.limit(), request as stream, aclosing(cast("AsyncGenerator[bytes]", stream.chunks())) as chunks:
            async for chunk in chunks:
                watchdog.heard()
                for (projected, document), _ in splitter.feed(chunk):
                    if projected is not None:
                        take(projected, document)
        items, metadata, kind = splitter.finish()
    except (UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"a list answer cannot be read: {error}") from None
    # A Table, the server's format for people, holds no objects. Behaviour A11.
    if kind and not kind.endswith("List"):
        raise DecodeError(f"requested a list, but the server answered with a {kind}")
    for (projected, document), _ in items:
        if projected is not None:
            take(projected, document)
    return metadata


Request = AbstractAsyncContextManager[Stream]


class ReflectorRequests:
    """Makes the requests of a list and watch. It requests discovery first if the path of the kind is unknown.

    Raises
        ApiError, TransportError, UnknownKind: the path cannot be discovered.
        ConfigError: the namespace is invalid, or the kind is cluster-scoped and a namespace is set.
    """

    def __init__(self, client: Client, scope: InformerScope[Any], namespace: str | None) -> None:
        """Make the requests for one namespace of a scope, or for all namespaces if ``namespace`` is None."""
        self._client = client
        self._scope = scope
        self._namespace = namespace
        self._lists = scope.list_options

    async def page(self, version: str, limit: int, token: str = "", match: Match | None = None) -> Request:
        """Return the request for a page of a list.

        Args:
            version: resourceVersion of the list. Empty: the newest.
            limit: Objects per page. 0: all in one.
            token: Continue token of the previous page, which carries its own version. Empty: the first page.
            match: How the version is compared (``resourceVersionMatch``). None: the server's default.
        """
        options = msgspec.structs.replace(
            self._lists,
            limit=limit,
            resource_version=None if token or not version else version,
            continue_token=token,
            resource_version_match=match,
        )
        return await self._get(options, self._scope.keep.accept_list)

    async def watch(self, version: str, seconds: int, *, initial: bool) -> Request:
        """Return the request for a watch from ``version`` on. ``initial``: stream the state at that version, or a later one, first."""
        options = WatchOptions(
            label_selector=self._lists.label_selector,
            field_selector=self._lists.field_selector,
            resource_version=version or None,
            timeout_seconds=seconds,
            send_initial_events=initial,
        )
        return await self._get(options, self._scope.keep.accept)

    async def _get(self, options: ListOptions | WatchOptions, accept: str) -> Request:
        # The transport does not retry: the reflector decides about retries and delays, and logs them immediately.
        return self._client.transport.stream("GET", await self._path(), query=options.query(), accept=accept, retry=False)

    async def _path(self) -> str:
        mapping = await self._client.mapping(self._scope.kind)
        try:
            return mapping.path(self._namespace)
        except ValueError as error:
            raise ConfigError(str(error)) from None
