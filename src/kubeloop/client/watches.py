"""A watch that goes on: typed events of one kind, resumed where it ended, until the caller leaves or the server has forgotten.

Without a cache; whoever needs the current state of many objects wants an informer.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes and client-go RetryWatcher.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Generic, Literal, Self, TypeVar, cast

import msgspec

from kubeloop.client.lists import ListCall
from kubeloop.client.options import ListOptions, WatchOptions
from kubeloop.codec import decode
from kubeloop.codec.frames import FrameCutter
from kubeloop.meta import ApiError, DecodeError, Resource, Status, TransportError, UntrustedCertificate
from kubeloop.timing import Backoff, Clock
from kubeloop.transport import Transport, logger_with_context

_logger = logger_with_context("kubeloop.client")

R = TypeVar("R", bound=Resource)

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

# client-go asks for 5 to 10 minutes, spread, so that watches do not all end together.
_SHORTEST, _LONGEST = 300, 600
# A server that does not end a watch at its own timeout is gone, whatever TCP says.
_GRACE = 5.0
# A connection that ends sooner and brought nothing is a fault, not a watch whose time is over (client-go: "very short watch").
_SHORT = 1.0


class Event(msgspec.Struct, Generic[R], frozen=True):
    """What happened to one object. Of a deleted one the last state is given."""

    type: EventType
    object: R


class _Frame(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Bookmark(msgspec.Struct):
    metadata: _Version


class Watch(Generic[R]):
    """``async with client.watch(Pod) as events: async for event in events: ...``; leaving the block frees the socket.

    Guarantees
        For one object events come in the order of its changes, none twice and none missing, over any number of reconnects.
        Without ``resource_version`` all objects that are there come first, as ADDED.

    Raises, from ``async for``
        Expired: the server no longer has the version to go on from; list again.
        ApiError: it refuses (401, 403, 404 ...). UntrustedCertificate. Other failures are waited out, longer each time.
    """

    def __init__(
        self,
        transport: Transport,
        locate: Callable[[], Awaitable[str]],
        kind: type[R],
        list_all: Callable[[ListOptions], ListCall[R]],
        options: WatchOptions,
        clock: Clock,
    ) -> None:
        self._transport = transport
        self._locate = locate
        self._path = ""
        self._kind = kind
        self._list_all = list_all
        self._options = options
        self._clock = clock
        self._version = options.resource_version
        self._backoff = Backoff(clock=clock)
        self._events: AsyncGenerator[Event[R], None] | None = None
        self._heard = False
        self._newer: dict[tuple[str, str], str] = {}

    @property
    def resource_version(self) -> str | None:
        """Where a new watch would have to go on from to miss nothing after the last event or bookmark."""
        return self._version

    async def __aenter__(self) -> Self:
        self._path = await self._locate()
        self._events = self._run()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._events is not None:
            await self._events.aclose()

    def __aiter__(self) -> AsyncIterator[Event[R]]:
        if self._events is None:
            raise RuntimeError("a watch is used inside its block: async with client.watch(...) as events")
        return self._events

    async def _run(self) -> AsyncGenerator[Event[R], None]:
        if self._version is None:
            async with aclosing(self._initial()) as initial:
                async for item in initial:
                    yield Event("ADDED", item)
        while True:
            self._heard = False
            started = self._clock.now()
            try:
                async with aclosing(self._once()) as events:
                    async for event in events:
                        yield event
                delay, why = 0.0, "it ended"
                if not self._heard and self._clock.now() - started < _SHORT:
                    delay, why = self._backoff.next(), "it ended at once"
            except UntrustedCertificate:
                raise
            except (TransportError, TimeoutError) as error:
                delay, why = self._backoff.next(), str(error) or "it outlived its own time"
            except ApiError as error:
                # What the server could not do now it may do later; what it refuses it will refuse again.
                if error.status.code < 500 and error.status.code != 429:
                    raise
                delay, why = max(self._backoff.next(), error.retry_after or 0), str(error)
            _logger.debug("watch of %s resumes from %s in %.1f s: %s", self._path, self._version, delay, why)
            await self._clock.sleep(delay)

    async def _initial(self) -> AsyncGenerator[R, None]:
        """All that is there; afterwards the watch goes on from its version."""
        version = ""
        async with aclosing(
            self._list_all(ListOptions(labels=self._options.labels, field_selector=self._options.field_selector)).pages()
        ) as pages:
            async for page in pages:
                # The first page names the snapshot; a page of a newer one must not hide changes made in between.
                version = version or page.resource_version
                for item in page:
                    if page.resource_version != version:
                        self._newer[item.metadata.namespace, item.metadata.name] = item.metadata.resource_version
                    yield item
        self._version = version

    async def _once(self) -> AsyncGenerator[Event[R], None]:
        """One connection's events. Ends when the server ends it."""
        seconds = self._options.timeout_seconds or random.randint(_SHORTEST, _LONGEST)
        options = msgspec.structs.replace(self._options, resource_version=self._version, timeout_seconds=seconds)
        cutter = FrameCutter()
        ends = asyncio.get_running_loop().time() + seconds + _GRACE
        async with AsyncExitStack() as stack:
            async with asyncio.timeout_at(ends):
                stream = await stack.enter_async_context(self._transport.stream("GET", self._path, query=options.query()))
            chunks = stream.chunks()
            while True:
                try:
                    async with asyncio.timeout_at(ends):
                        chunk = await anext(chunks)
                except StopAsyncIteration:
                    return
                for frame in cutter.feed(chunk):
                    event = self._read(frame)
                    self._heard = True
                    self._backoff.reset()
                    if event is not None:
                        yield event

    def _read(self, frame: memoryview) -> Event[R] | None:
        try:
            event = msgspec.json.decode(frame, type=_Frame)
            if event.type == "BOOKMARK":
                # Of a bookmark only the version counts: its other fields are empty whatever the kind requires.
                self._version = msgspec.json.decode(event.object, type=_Bookmark).metadata.resource_version or self._version
                return None
            if event.type == "ERROR":
                raise ApiError.of(msgspec.json.decode(event.object, type=Status), f"watch {self._path}")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DecodeError(f"{self._path}: a watch frame is not what it should be: {error}") from error
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            raise DecodeError(f'{self._path}: watch events of type "{event.type}" are not known')
        # A copy, so that the object does not keep a whole chunk alive.
        item = decode(self._kind, bytes(event.object))
        self._version = item.metadata.resource_version
        if self._newer and self._was_listed_newer(item):
            return None
        return Event(cast("EventType", event.type), item)

    def _was_listed_newer(self, item: R) -> bool:
        """True for what the list showed already, in a page from after its first page's snapshot (KEP-365)."""
        key = item.metadata.namespace, item.metadata.name
        listed = self._newer.get(key)
        # Versions of one resource type compare as numbers (KEP-5504).
        if listed is not None and _number(listed) >= _number(item.metadata.resource_version):
            return True
        self._newer.pop(key, None)
        return False


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdecimal() else 0
