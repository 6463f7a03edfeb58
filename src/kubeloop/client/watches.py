"""A resumed watch: typed events of one kind over any number of connections, until the caller leaves or the resourceVersion has expired.

It has no cache; for the current state of many objects use an informer.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes and client-go RetryWatcher.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Generic, Literal, NoReturn, Self, TypeVar, cast

import msgspec

from kubeloop.client.lists import ListCall
from kubeloop.client.options import Expiry, ListOptions, WatchOptions
from kubeloop.codec import decode, document_of
from kubeloop.codec.frames import FrameSplitter
from kubeloop.meta import ApiError, DeadlineError, DecodeError, Gone, KubeloopError, Resource, Status, TransportError, UntrustedCertificate
from kubeloop.meta.type_checks import described_word
from kubeloop.timing import Backoff, Clock, TimeLimit
from kubeloop.transport import Transport, logger_with_context

_LOG = logger_with_context("kubeloop.client")

R = TypeVar("R", bound=Resource)

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

# client-go asks for 5 to 10 minutes, spread, so that watches do not all end together.
_SHORTEST, _LONGEST = 300, 600
# A server that does not end a watch at its own timeout is gone, whatever TCP says.
_GRACE = 5.0
# A connection that ends sooner and brought nothing is a fault, not a watch whose time is over (client-go: "very short watch").
_SHORT = 1.0


class Event(msgspec.Struct, Generic[R], frozen=True):
    """One watch event. For DELETED, ``object`` is the last known state.

    >>> secret = await client.create(Secret(metadata=ObjectMeta(name="token")))
    >>> async with client.watch(Secret) as events:
    ...     async for event in events:
    ...         print(event.type, event.object.metadata.name)
    ...         break
    ADDED token
    """

    type: EventType
    object: R


class _Frame(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Bookmark(msgspec.Struct):
    metadata: _Version


class _InterruptedError(KubeloopError):
    """The server ended the watch with an ERROR event other than 410."""


class Watch(Generic[R]):
    """A watch of one kind. Leaving the ``async with`` block closes its connection.

    >>> secret = await client.create(Secret(metadata=ObjectMeta(name="token")))
    >>> async with client.watch(Secret, timeout=60) as events:
    ...     async for event in events:
    ...         if event.type == "ADDED":
    ...             result = await client.delete(Secret, event.object.metadata.name)
    ...         elif event.type == "DELETED":
    ...             break

    Guarantees
        The events of one object come in the order of its changes, each exactly once, over any number of reconnections.
        Without ``resource_version`` the existing objects come first, as ADDED.
        The watch continues until the caller leaves; with ``timeout`` the iteration ends after that many seconds.
        With ``on_expired="relist"``: if the server no longer has the version, the watch lists again and yields the differences. Objects
        that were deleted in between come as DELETED with their last known state. Intermediate states are then missing.

    Raises, from ``async for``
        Expired: the server no longer has the version; list again. Not with ``on_expired="relist"``.
        ApiError: the server refuses (401, 403, 404 ...). UntrustedCertificate. TransportError: the client was closed.
        After other failures the watch reconnects, with growing pauses.

    Raises
        ValueError: ``resource_version`` is "" or "0", whose events have no defined order; ``options`` request initial events; or
            ``on_expired`` has another value.
    """

    def __init__(
        self,
        transport: Transport,
        locate: Callable[[], Awaitable[str]],
        kind: type[R],
        list_all: Callable[[ListOptions], ListCall[R]],
        options: WatchOptions,
        clock: Clock,
        *,
        accept: str = "application/json",
        timeout: float | None = None,
        on_expired: Expiry = "raise",
    ) -> None:
        """Create an instance. Programs call ``client.watch`` instead.

        Args:
            transport: The connection to the API server.
            locate: Returns the path of the objects; it may need discovery.
            kind: The class of the objects.
            list_all: Lists the objects, for ``on_expired="relist"`` and for the existing objects.
            options: Which objects to watch, and from which version.
            clock: The clock of pauses between connections, and of ``timeout``.
            accept: The media types of the responses; they may ask for metadata only.
            timeout: Seconds after which the iteration ends. None: never.
            on_expired: ``"raise"`` or ``"relist"``.
        """
        if options.resource_version in ("", "0"):
            raise ValueError(
                f'resource_version="{options.resource_version}" names no state to go on from; leave it out to start with existing objects, '
                "or give that of an object or a list"
            )
        if options.send_initial_events:
            raise ValueError("send_initial_events=True: a watch without resource_version begins with the existing objects anyway")
        if on_expired not in ("raise", "relist"):
            raise ValueError(f"on_expired={described_word(on_expired)}: must be one of raise, relist")
        self._transport = transport
        self._locate = locate
        self._path = ""
        self._kind = kind
        self._list_all = list_all
        self._options = options
        self._clock = clock
        self._accept = accept
        self._timeout = timeout
        self._deadline: float | None = None
        self._version = options.resource_version
        self._backoff = Backoff(clock=clock)
        self._events: AsyncGenerator[Event[R], None] | None = None
        self._heard = False
        self._relisted = False
        self._newer: dict[tuple[str, str], str] = {}
        self._known: dict[tuple[str, str], R] | None = {} if on_expired == "relist" else None

    @property
    def resource_version(self) -> str | None:
        """The version from which another watch would continue without missing an event."""
        return self._version

    async def __aenter__(self) -> Self:
        if self._timeout is not None:
            self._deadline = self._clock.now() + self._timeout
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

    if not TYPE_CHECKING:  # type checkers report this mistake without it

        def __iter__(self) -> NoReturn:
            raise TypeError(
                "events come from the server: write `async with client.watch(KIND) as events:` and in it `async for event in events:`"
            )

    async def _run(self) -> AsyncGenerator[Event[R], None]:
        try:
            if self._version is None:
                # Not retried: the caller of a watch gets the first error at once.
                async with aclosing(self._listed()) as events:
                    async for event in events:
                        yield event
        except TimeoutError:
            if not self._is_over():
                raise
            return
        while not self._is_over():
            self._heard = False
            started = self._clock.now()
            try:
                async with aclosing(self._listed() if self._version is None else self._once()) as events:
                    async for event in events:
                        yield event
                delay, why = 0.0, "it ended"
                if not self._heard and self._version is not None and self._clock.now() - started < _SHORT:
                    delay, why = self._backoff.next(), "it ended at once"
            except UntrustedCertificate:
                raise
            except Gone as error:
                if self._known is None:
                    raise
                delay, why = self._backoff.next() if self._relisted else 0.0, str(error)
                self._version, self._relisted = None, True
            except (TransportError, DeadlineError, TimeoutError, _InterruptedError) as error:
                if self._transport.closed and isinstance(error, TransportError):
                    raise
                delay, why = self._backoff.next(), str(error) or "it outlived its own time"
            except ApiError as error:
                # A server error or 429 may be temporary; the server would repeat any other refusal.
                if error.status.code < 500 and error.status.code != 429:
                    raise
                delay, why = max(self._backoff.next(), error.retry_after or 0), str(error)
            if self._is_over():
                return
            _LOG.debug("watch of %s resumes from %s in %.1f s: %s", self._path, self._version, delay, why)
            await self._pause(delay)

    def _is_over(self) -> bool:
        return self._deadline is not None and self._clock.now() >= self._deadline

    def _limit(self, deadline: float | None) -> TimeLimit:
        return TimeLimit(self._clock, None if deadline is None else deadline - self._clock.now())

    async def _pause(self, seconds: float) -> None:
        try:
            async with self._limit(self._deadline):
                await self._clock.sleep(seconds)
        except TimeoutError:
            if not self._is_over():
                raise

    async def _listed(self) -> AsyncGenerator[Event[R], None]:
        """Yield the existing objects, or the differences from the known state; the watch then continues from the list's version."""
        version = ""
        gone = set(self._known or ())
        options = ListOptions(label_selector=self._options.label_selector, field_selector=self._options.field_selector)
        async with aclosing(self._list_all(options).pages()) as pages:
            while True:
                async with self._limit(self._deadline):
                    page = await anext(pages, None)
                if page is None:
                    break
                # The first page names the snapshot; a page of a newer one must not hide changes made in between.
                version = version or page.resource_version
                for item in page:
                    key = item.metadata.namespace, item.metadata.name
                    gone.discard(key)
                    if page.resource_version != version:
                        self._newer[key] = item.metadata.resource_version
                    for event in self._difference(key, item):
                        yield event
        for key in gone:
            if self._known is not None:
                yield Event("DELETED", self._known.pop(key))
        self._version = version

    def _difference(self, key: tuple[str, str], item: R) -> Iterator[Event[R]]:
        before = self._known.get(key) if self._known is not None else None
        if self._known is not None:
            self._known[key] = self._own(item)
        if before is None:
            yield Event("ADDED", item)
        elif before.metadata.uid != item.metadata.uid:
            yield Event("DELETED", before)
            yield Event("ADDED", item)
        elif before.metadata.resource_version != item.metadata.resource_version:
            yield Event("MODIFIED", item)

    def _own(self, item: R) -> R:
        """Return a copy that no caller can change."""
        document = document_of(item)
        return decode(self._kind, document, checked=True) if document is not None else item

    async def _once(self) -> AsyncGenerator[Event[R], None]:
        """Yield the events of one connection until the server closes it."""
        seconds = self._options.timeout_seconds or random.randint(_SHORTEST, _LONGEST)
        options = msgspec.structs.replace(self._options, resource_version=self._version, timeout_seconds=seconds)
        cutter = FrameSplitter()
        ends = self._clock.now() + seconds + _GRACE
        if self._deadline is not None:
            ends = min(ends, self._deadline)
        async with AsyncExitStack() as stack:
            async with self._limit(ends):
                opened = self._transport.stream("GET", self._path, query=options.query(), accept=self._accept)
                stream = await stack.enter_async_context(opened)
            chunks = stream.chunks()
            while True:
                # A watch may be silent for hours: nothing of the last chunk is kept meanwhile.
                frames: list[memoryview] = []
                frame = memoryview(b"")
                try:
                    async with self._limit(ends):
                        frames = cutter.feed(await anext(chunks))
                except StopAsyncIteration:
                    return
                for frame in frames:
                    event = self._read(frame)
                    self._heard = True
                    self._relisted = False
                    self._backoff.reset()
                    if event is not None:
                        yield event

    def _read(self, frame: memoryview) -> Event[R] | None:
        try:
            event = msgspec.json.decode(frame, type=_Frame)
            if event.type == "BOOKMARK":
                # Only the version of a bookmark is read: its other fields are empty, even fields that the kind requires.
                self._version = msgspec.json.decode(event.object, type=_Bookmark).metadata.resource_version or self._version
                return None
            if event.type == "ERROR":
                error = ApiError.from_status(msgspec.json.decode(event.object, type=Status), f"watch {self._path}")
                # As client-go: only an expired version ends the watch; other errors within a stream lead to another connection.
                raise error if isinstance(error, Gone) else _InterruptedError(str(error))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DecodeError(f"{self._path}: a watch frame is not what it should be: {error}") from error
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            raise DecodeError(f'{self._path}: watch events of type "{event.type}" are not known')
        # A copy, so that the object does not keep a whole chunk alive.
        item = decode(self._kind, bytes(event.object))
        self._version = item.metadata.resource_version
        if self._newer and self._was_listed_newer(item):
            return None
        if self._known is not None:
            key = item.metadata.namespace, item.metadata.name
            if event.type == "DELETED":
                self._known.pop(key, None)
            else:
                self._known[key] = self._own(item)
        return Event(cast("EventType", event.type), item)

    def _was_listed_newer(self, item: R) -> bool:
        """Return whether a page that is newer than the first page's snapshot already showed this state (KEP-365)."""
        key = item.metadata.namespace, item.metadata.name
        listed = self._newer.get(key)
        # Versions of one resource type compare as numbers (KEP-5504).
        if listed is not None and _number(listed) >= _number(item.metadata.resource_version):
            return True
        self._newer.pop(key, None)
        return False


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdecimal() else 0
