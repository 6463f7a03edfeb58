"""List and watch: acts on the reflector's steps over one transport and feeds what comes to a sink. Holds no state of the cache.

Bytes become frames, frames heads; what to ask next is decided in ``reflector.py`` alone.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import msgspec

from kubeloop.cache import reflector
from kubeloop.cache.failures import trouble_of
from kubeloop.cache.head import Head, HeadReader
from kubeloop.cache.policy import WatchPolicy
from kubeloop.cache.reflector import Install, Installed, List, ListFailed, Outcome, Page, Step, Trouble, WatchEnded, WatchError, WatchFailed
from kubeloop.cache.scope import Scope
from kubeloop.client import Client, ListOptions, WatchOptions
from kubeloop.codec.frames import FrameCutter
from kubeloop.codec.list_pages import ListSplitter
from kubeloop.codec.projection import Projected
from kubeloop.meta import ApiError, ConfigError, DecodeError, KubeloopError, Resource, Status, TransportError
from kubeloop.timing import Backoff, Clock
from kubeloop.transport import Stream, logger_with_context

_log = logger_with_context("kubeloop.cache")

#: A stream that outlives its own timeout by this much has lost its server, whatever TCP says.
GRACE = 5.0
#: A list from which nothing comes for so long is given up.
LIST_SILENCE = 60.0


class Sink(Protocol):
    """Where what was read goes."""

    @property
    def reader(self) -> HeadReader:
        """Makes the heads."""

    def before(self, namespace: str, name: str) -> Head | None:
        """The state that the cache has of an object."""

    def listing(self) -> None:
        """A list begins."""

    def replace(self, heads: list[Head], version: str) -> None:
        """This is all there is."""

    def change(self, head: Head) -> None:
        """An object was added or modified."""

    def remove(self, head: Head) -> None:
        """An object was deleted."""

    def bookmark(self, version: str) -> None:
        """Nothing changed up to this version."""

    def flush(self) -> None:
        """A batch is complete: apply it."""

    def watching(self) -> None:
        """The server answers a watch."""

    def failed(self, error: Exception) -> None:
        """A request failed; it will be tried again."""


class ListWatch:
    """Keeps a sink equal to what a server has of one kind, until it is cancelled.

    Guarantees
        Cancelling closes the open request. Each failure is logged at once with its reason and reported to the sink.

    Not guaranteed
        To end by itself, whatever the server answers: permissions may be granted and kinds installed later.
    """

    def __init__(
        self,
        client: Client,
        scope: Scope[Any],
        namespace: str | None,
        clock: Clock,
        rng: random.Random,
        policy: WatchPolicy | None = None,
    ) -> None:
        """Of a scope's namespaces it takes one, None for all that there are."""
        self._client = client
        self._kind: type[Resource] = scope.kind
        self._what = scope.what(namespace)
        self._namespace = namespace
        self._keep = scope.keep
        self._lists = scope.list_options
        self._clock = clock
        self._rng = rng
        self._policy = policy or WatchPolicy()
        self._backoff = self._policy.backoff() if self._policy.backoff else Backoff(clock=clock, rng=rng)
        #: How often everything was asked for, by reason.
        self.lists: Counter[str] = Counter()
        #: How often a watch was opened again, by reason.
        self.restarts: Counter[str] = Counter()
        #: Watches that the server answered, and whether one is open now.
        self.watches = 0
        self.watching = False

    @property
    def reconnects(self) -> int:
        """How often a watch was opened again."""
        return self.restarts.total()

    async def run(self, sink: Sink, resume_from: str = "") -> None:
        """``resume_from``: the version of a state that the sink holds: only changes since are asked for, if the server has them."""
        state, step = reflector.begin(self._policy.page_size, watch_list=self._policy.watch_list, resume_from=resume_from)
        heads: list[Head] = []
        reason = ""
        while True:
            delay = self._backoff.next() if step.pause else 0.0
            if reason:
                _log.warning("%s: %s; %s", self._what, reason, _intention(step, delay))
            if step.pause:
                await self._clock.sleep(delay)
            outcome, reason = await self._act(step, sink, heads)
            state, step = reflector.next_step(state, outcome)

    async def _act(self, step: Step, sink: Sink, heads: list[Head]) -> tuple[Outcome, str]:
        """The outcome of a step, and why it was no success (for the log)."""
        match step:
            case List():
                if step.fresh:
                    heads.clear()
                    sink.listing()
                    self.lists["initial"] += 1
                try:
                    return await self._list(step, sink, heads), ""
                except KubeloopError as error:
                    sink.failed(error)
                    return ListFailed(trouble_of(error)), f"cannot list: {error}"
            case Install():
                sink.replace(heads, step.version)
                heads.clear()
                return Installed(), ""
            case reflector.Watch():
                return await self._watch(step.version, sink)

    async def _path(self) -> str:
        mapping = await self._client.mapping(self._kind)
        try:
            return mapping.path(self._namespace)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def _stream(self, path: str, options: ListOptions | WatchOptions, accept: str) -> AbstractAsyncContextManager[Stream]:
        return self._client.transport.stream("GET", path, query=options.query(), accept=accept)

    # ---------------------------------------------------------------------------------------------------------------- list

    async def _list(self, step: List, sink: Sink, heads: list[Head]) -> Outcome:
        reader = sink.reader
        splitter = ListSplitter(reader.projection.object)
        version = None if step.token or not step.version else step.version
        options = msgspec.structs.replace(self._lists, limit=step.limit, resource_version=version, continue_token=step.token)
        path = await self._path()
        async with self._silence(LIST_SILENCE) as heard, self._stream(path, options, self._keep.accept_list) as stream:
            async for chunk in stream.chunks():
                heard()
                for projected, document in splitter.feed(chunk):
                    self._take(projected, document, reader, sink, heads)
        items, metadata, kind = splitter.finish()
        if kind and not kind.endswith("List"):
            raise DecodeError(f"asked for a list, the server answered with a {kind}")
        for projected, document in items:
            self._take(projected, document, reader, sink, heads)
        return Page(metadata.resource_version, metadata.continue_)

    def _take(self, projected: Projected, document: memoryview, reader: HeadReader, sink: Sink, heads: list[Head]) -> None:
        if (projected.kind and not reader.expects(projected)) or not projected.metadata.name:
            _skip(self._what, projected)
            return
        metadata = projected.metadata
        before = sink.before(metadata.namespace, metadata.name)
        if (
            before is not None
            and before.resource_version == metadata.resource_version
            and metadata.resource_version
            and before.uid == metadata.uid
            and reader.made(before)
        ):
            heads.append(before)
        else:
            heads.append(reader.head(projected, document, before))

    @asynccontextmanager
    async def _silence(self, limit: float) -> AsyncIterator[_Heard]:
        """Ends the block when ``heard`` was not called for ``limit`` seconds.

        Raises:
            TransportError: silence.
        """
        heard = _Heard(self._clock)
        try:
            async with asyncio.timeout(None) as scope:
                heard.watch(scope, limit)
                try:
                    yield heard
                finally:
                    heard.stop()
        except TimeoutError:
            raise TransportError(f"nothing came from the server for {limit:g} s; the request was given up") from None

    # --------------------------------------------------------------------------------------------------------------- watch

    async def _watch(self, version: str, sink: Sink) -> tuple[Outcome, str]:
        seconds = self._rng.randint(*self._policy.watch_seconds)
        options = WatchOptions(
            labels=self._lists.labels, field_selector=self._lists.field_selector, resource_version=version, timeout_seconds=seconds
        )
        progress = _WatchProgress(self._clock.now())
        loop = asyncio.get_running_loop()
        try:
            path = await self._path()
            async with asyncio.timeout(None) as scope:
                overdue = self._clock.call_later(seconds + GRACE, lambda: scope.reschedule(loop.time()))
                try:
                    async with self._stream(path, options, self._keep.accept) as stream:
                        progress.opened = self.watching = True
                        self.watches += 1
                        sink.watching()
                        cutter = FrameCutter()
                        async for chunk in stream.chunks():
                            frames = cutter.feed(chunk)
                            if frames:
                                self._frames(frames, sink, progress)
                finally:
                    self.watching = False
                    overdue.cancel()
        except TimeoutError:
            # The server, or something between, lost the stream without closing it.
            progress.events += 1
            return self._ended(progress), f"the watch outlived its {seconds} s: abandoned"
        except _ErrorEvent as event:
            sink.failed(event.error)
            return WatchError(progress.version, trouble_of(event.error)), f"the watch ended with an error: {event.error}"
        except DecodeError as error:
            sink.failed(error)
            return WatchError(progress.version, Trouble.OTHER), f"the watch cannot be read: {error}"
        except KubeloopError as error:
            if progress.opened:
                return self._ended(progress), f"the watch broke: {error}"
            sink.failed(error)
            return WatchFailed(trouble_of(error)), f"cannot watch: {error}"
        return self._ended(progress), ""

    def _ended(self, progress: _WatchProgress) -> Outcome:
        self.restarts["ended"] += 1
        lasted = self._clock.now() - progress.began
        _log.debug(
            "%s: the watch ended after %.0f s and %d events, at version %s", self._what, lasted, progress.events, progress.version or "-"
        )
        return WatchEnded(progress.version, progress.events, lasted)

    def _frames(self, frames: list[memoryview], sink: Sink, progress: _WatchProgress) -> None:
        reader = sink.reader
        read, make, before, expects = reader.projection.event, reader.head, sink.before, reader.expects
        try:
            for frame in frames:
                kind, projected, document = read(frame)
                progress.events += 1
                if kind == "ERROR":
                    raise _ErrorEvent(_status(document))
                metadata = projected.metadata
                if not expects(projected) or not (metadata.name or kind == "BOOKMARK"):
                    _skip(self._what, projected)
                    continue
                if kind == "BOOKMARK":
                    sink.bookmark(metadata.resource_version)
                elif kind in ("ADDED", "MODIFIED"):
                    sink.change(make(projected, document, before(metadata.namespace, metadata.name)))
                elif kind == "DELETED":
                    sink.remove(make(projected, document, before(metadata.namespace, metadata.name)))
                else:
                    raise DecodeError(f'an event of unknown type "{kind}"')
                progress.version = metadata.resource_version or progress.version
        finally:
            sink.flush()


class _WatchProgress:
    __slots__ = ("began", "events", "opened", "version")

    def __init__(self, began: float) -> None:
        self.began = began
        self.opened = False
        self.events = 0
        self.version = ""


class _ErrorEvent(Exception):
    def __init__(self, error: ApiError) -> None:
        self.error = error


class _Heard:
    """Remembers when something came; one timer at a time, however often it is called."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.now()

    def __call__(self) -> None:
        self._last = self._clock.now()

    def watch(self, scope: asyncio.Timeout, limit: float) -> None:
        left = self._last + limit - self._clock.now()
        if left <= 0:
            scope.reschedule(asyncio.get_running_loop().time())
        else:
            self._timer = self._clock.call_later(left, lambda: self.watch(scope, limit))

    def stop(self) -> None:
        self._timer.cancel()


def _status(document: memoryview) -> ApiError:
    try:
        return ApiError.of(msgspec.json.decode(document, type=Status), "watch")
    except msgspec.DecodeError as error:
        raise DecodeError(f"an ERROR event without a Status: {error}") from None


def _skip(what: str, projected: Projected) -> None:
    name = projected.metadata.name or "without a name"
    _log.error("%s: skipped an object of %s, Kind=%s (%s)", what, projected.api_version or "no apiVersion", projected.kind or "none", name)


def _intention(step: Step, delay: float) -> str:
    then = {List: "listing again", reflector.Watch: "watching again"}.get(type(step), "going on")
    return f"{then} in {delay:.1f} s" if step.pause else f"{then} at once"
