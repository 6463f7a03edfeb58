"""List and watch: executes the reflector's steps with requests, and passes the received objects to a store. It holds no state of the cache.

It decodes frames to heads. Only ``reflector.py`` decides what to request next.
"""

from __future__ import annotations

import functools
import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, assert_never

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.reflector.event_decoder import ErrorEvent, EventDecoder, ReflectorStore, error_event
from kubeloop.cache.reflector.initial_state import TRIES, InitialState, InitialStateComparison
from kubeloop.cache.reflector.reflector import begin, next_step
from kubeloop.cache.reflector.reporter import ReflectorReporter, failure_class_of, retry_after_of
from kubeloop.cache.reflector.requests import SILENCE, ReflectorRequests, ReflectorStream, read_page
from kubeloop.cache.reflector.stall_detection import WatchStalled
from kubeloop.cache.reflector.steps import (
    ContinueWatch,
    FailureClass,
    InitialStateStreamed,
    ListFailed,
    ListPage,
    OpenWatch,
    Outcome,
    PageListed,
    ReplaceStore,
    Step,
    StoreReplaced,
    StreamEnd,
    StreamEnded,
    StreamFailed,
    WatchError,
    WatchFailed,
    WatchFinished,
    WatchList,
    WatchPolicy,
)
from kubeloop.cache.scope import InformerScope
from kubeloop.client import Client
from kubeloop.codec.projection import Projected
from kubeloop.http1.progress import PROGRESS, RequestProgress
from kubeloop.meta import DecodeError, KubeloopError
from kubeloop.meta.repr import counted
from kubeloop.timing import Backoff, Clock, Timer
from kubeloop.transport import logger_with_context

_LOG = logger_with_context("kubeloop.cache")

#: Seconds after which an unfinished list or stream request is logged first; the interval doubles each time.
FIRST_WARNING = 10.0
#: Seconds between log records about a stream whose initial state is incomplete. Behaviour C41.
REMIND = 10.0


class ListWatch:
    """Keeps a ``ReflectorStore`` equal to the server's objects of one kind, until it is cancelled.

    Guarantees
        Cancelling closes the open request. Each failure is logged at once with its reason and reported to the store.
        A stream that ended with an error is closed before the next step.

    Not guaranteed
        An end after errors: permissions may be granted and kinds installed later, so it retries for ever.

    Args:
        client: Sends the requests.
        scope: Kind and selection.
        namespace: The namespace to watch, one of those of the scope. None: all namespaces.
        clock: Clock of delays and time limits.
        rng: Source of jitter.
        policy: Options. None: the defaults.

    Raises
        InconsistentState: only with ``check_consistency``.
    """

    def __init__(
        self,
        client: Client,
        scope: InformerScope[Any],
        namespace: str | None,
        clock: Clock,
        rng: random.Random,
        policy: WatchPolicy | None = None,
    ) -> None:
        self._description = scope.describe(namespace)
        self._requests = ReflectorRequests(client, scope, namespace)
        self._clock = clock
        self._rng = rng
        self._policy = policy or WatchPolicy()
        self._backoff = self._policy.backoff() if self._policy.backoff else Backoff(clock=clock, rng=rng)
        self._decoder = EventDecoder(self._description)
        self._stream: ReflectorStream | None = None
        self._reporter = ReflectorReporter(self._description, self._policy.on_error, scope.kind)
        #: Number of lists and streamed lists, by reason.
        self.lists: Counter[str] = self._reporter.lists
        #: Number of watches that were opened again without a list, by reason.
        self.restarts: Counter[str] = self._reporter.restarts
        #: Number of watches that the server accepted, and whether one is open now.
        self.watches = 0
        self.watching = False

    @property
    def reconnects(self) -> int:
        """Number of times that a watch was opened again."""
        return self.restarts.total()

    async def run(self, store: ReflectorStore, resume_from: str = "") -> None:
        """Run until cancelled.

        ``resume_from`` is the version of a state that the store already holds: only the changes since that version are requested. If the
        server no longer has these changes, which it may report only in the first event of the watch, everything is listed.
        """
        policy, clock = self._policy, self._clock
        state, step = begin(
            policy.page_size, watch_list=policy.watch_list, resume_from=resume_from, internal_retry=policy.internal_error_retry
        )
        heads: list[Head] = []
        try:
            while True:
                delay = max(self._backoff.next(), step.wait) if step.pause else 0.0
                self._reporter.next(step, delay)
                if step.pause:
                    await clock.sleep(delay)
                outcome = await self._act(step, store, heads)
                state, step = next_step(state, outcome, clock.now())
        finally:
            await self._close()

    async def _act(self, step: Step, store: ReflectorStore, heads: list[Head]) -> Outcome:
        match step:
            case WatchList():
                return await self._show(step, store, heads)
            case ListPage():
                return await self._list(step, store, heads)
            case ReplaceStore():
                store.replace(heads, step.version)
                heads.clear()
                return StoreReplaced()
            case ContinueWatch():
                return await self._follow(store)
            case OpenWatch():
                return await self._watch(step, store)
            case _ as never:
                assert_never(never)

    # ---------------------------------------------------------------------------------------------------------------- list

    async def _list(self, step: ListPage, store: ReflectorStore, heads: list[Head]) -> Outcome:
        if step.fresh:
            heads.clear()
            store.begin_list()
        reader, listed, keep = store.reader, self._decoder.listed, heads.append

        def take(projected: Projected, document: memoryview | bytes) -> None:
            head = listed(projected, document, reader, store)
            if head is not None:
                keep(head)

        try:
            with self._warning("the list has not ended", store):
                request = await self._requests.page(step.version, step.limit, step.token)
                page = await read_page(request, self._decoder, reader.projection, take, self._clock)
        except KubeloopError as error:
            self._reporter.failed(error, "cannot list", store, "list")
            return ListFailed(failure_class_of(error), retry_after_of(error))
        return PageListed(page.resource_version, page.continue_)

    # -------------------------------------------------------------------------------------------------------------- stream

    async def _show(self, step: WatchList, store: ReflectorStore, heads: list[Head]) -> Outcome:
        """Request the initial state as a stream. After the complete state the stream stays open for the watch."""
        heads.clear()
        store.begin_list()
        initial: InitialState | None = None
        complete = False
        try:
            with self._warning("the server has not begun to stream the state", store):
                stream = await self._open(step.version, initial=True)
            store.watching()
            initial = InitialState(self._decoder, store, stream)
            with self._reminding(initial, stream, store):
                complete = await stream.read(initial.take, SILENCE)
        except ErrorEvent as event:
            return self._not_shown(event.error, store)
        except WatchStalled as error:
            self._reporter.failed(error, "the state cannot be streamed", store)
            return StreamEnded(StreamEnd.SILENT, *self._so_far())
        except KubeloopError as error:
            if initial is None or isinstance(error, DecodeError):
                return self._not_shown(error, store)
            self._reporter.failed(error, "the stream of the state broke", store)
            return StreamEnded(StreamEnd.BROKEN, *self._so_far())
        finally:
            if not complete:
                await self._close()
        if not complete:
            self._reporter.note(f"the server ended the stream after {counted(len(initial), 'object')}, before it had shown everything")
            return StreamEnded(StreamEnd.CLOSED, stream.events, stream.lasted)
        heads[:] = initial.heads()
        if self._policy.check_consistency:
            await self._compare(heads, initial.version, store)
        return InitialStateStreamed(initial.version)

    def _not_shown(self, error: KubeloopError, store: ReflectorStore) -> Outcome:
        failure_class = failure_class_of(error)
        # Otherwise the store is not notified: a list follows immediately, and may be allowed where the stream is not.
        final = failure_class in (FailureClass.REFUSED, FailureClass.BUSY)
        self._reporter.failed(error, "the state cannot be streamed", store if final else None)
        return StreamFailed(failure_class, retry_after_of(error))

    @contextmanager
    def _warning(self, text: str, store: ReflectorStore) -> Iterator[None]:
        """Log the progress of the request at growing intervals while the block runs, because a server that hangs causes no error."""
        progress = RequestProgress(self._clock)
        token = PROGRESS.set(progress)
        passed, pause = 0.0, FIRST_WARNING
        timer: Timer

        def warn() -> None:
            nonlocal passed, pause, timer
            passed += pause
            warning = f"{text} after {passed:.0f} s ({progress})"
            _LOG.warning("%s: %s", self._description, warning)
            store.waiting(warning)
            pause = passed
            timer = self._clock.call_later(pause, warn)

        timer = self._clock.call_later(pause, warn)
        try:
            yield
        finally:
            timer.cancel()
            PROGRESS.reset(token)

    @contextmanager
    def _reminding(self, initial: InitialState, stream: ReflectorStream, store: ReflectorStore) -> Iterator[None]:
        timer: Timer

        def remind() -> None:
            nonlocal timer
            objects = counted(len(initial), "object")
            warning = f"after {stream.lasted:.0f} s and {objects} the server has not said that it has shown everything"
            _LOG.warning("%s: %s", self._description, warning)
            store.waiting(warning)
            timer = self._clock.call_later(REMIND, remind)

        timer = self._clock.call_later(REMIND, remind)
        try:
            yield
        finally:
            timer.cancel()

    async def _compare(self, heads: list[Head], version: str, store: ReflectorStore) -> None:
        for attempt in range(1, TRIES + 1):
            comparison = InitialStateComparison()
            try:
                request = await self._requests.page(version, 0, match="Exact")
                await read_page(request, self._decoder, store.reader.projection, comparison.take, self._clock)
            except KubeloopError as error:
                _LOG.warning("%s: no list to compare the streamed state with, try %d of %d: %s", self._description, attempt, TRIES, error)
                if failure_class_of(error) is FailureClass.EXPIRED:
                    break
                await self._clock.sleep(max(1.0, retry_after_of(error)))
            else:
                comparison.check(heads, version, self._description)
                return
        _LOG.warning("%s: the state streamed at version %s was not compared", self._description, version)

    # --------------------------------------------------------------------------------------------------------------- watch

    async def _watch(self, step: OpenWatch, store: ReflectorStore) -> Outcome:
        try:
            await self._open(step.version)
            if step.check:
                await self._check(step.version, store)
        except KubeloopError as error:
            await self._close()
            self._reporter.failed(error, "cannot watch", store)
            return WatchFailed(failure_class_of(error), retry_after_of(error))
        store.watching()
        return await self._follow(store)

    async def _check(self, version: str, store: ReflectorStore) -> None:
        """Ask the server for a page not older than ``version``. Raises the server's error if the server has not reached that version."""
        request = await self._requests.page(version, 1, match="NotOlderThan")
        await read_page(request, self._decoder, store.reader.projection, lambda *_: None, self._clock)

    async def _follow(self, store: ReflectorStore) -> Outcome:
        stream = self._stream
        assert stream is not None
        ending = StreamEnd.CLOSED
        try:
            await stream.read(functools.partial(self._frames, store, stream))
        except ErrorEvent as event:
            failure_class = failure_class_of(event.error)
            if failure_class is FailureClass.EXPIRED:
                # The server's history is shorter than the watch was; that is not a failure. Behaviour B18.
                self._reporter.note(f"the watch ended with an error: {event.error}", logging.INFO)
                store.waiting(f"the watch ended with an error: {event.error}")
            else:
                self._reporter.failed(event.error, "the watch ended with an error", store)
            return WatchError(stream.version, failure_class, retry_after_of(event.error))
        except WatchStalled as error:
            ending = StreamEnd.SILENT
            self._reporter.failed(error, "the watch went silent")
        except DecodeError as error:
            self._reporter.failed(error, "the watch cannot be read", store)
            return WatchError(stream.version, FailureClass.OTHER)
        except KubeloopError as error:
            ending = StreamEnd.BROKEN
            self._reporter.failed(error, "the watch broke")
        finally:
            await self._close()
        _LOG.debug(
            "%s: the watch ended after %.0f s and %d events, at version %s",
            self._description,
            stream.lasted,
            stream.events,
            stream.version or "-",
        )
        return WatchFinished(stream.version, stream.events, stream.lasted, ending)

    def _frames(self, store: ReflectorStore, stream: ReflectorStream, frames: list[memoryview]) -> None:
        reader = store.reader
        read, make, before, expects = reader.projection.event, reader.head, store.before, reader.keeper.expects
        try:
            for frame in frames:
                stream.events += 1
                try:
                    kind, projected, document = read(frame)
                    if kind == "ERROR":
                        raise error_event(document)
                    metadata = projected.metadata
                    if not expects(projected) or not (metadata.name or kind == "BOOKMARK"):
                        self._decoder.skip(projected)
                        continue
                    if kind == "MODIFIED" or kind == "ADDED":
                        store.change(make(projected, document, before(metadata.namespace, metadata.name)))
                    elif kind == "DELETED":
                        store.remove(make(projected, document, before(metadata.namespace, metadata.name)))
                    elif kind == "BOOKMARK":
                        stream.bookmark()
                        store.bookmark(metadata.resource_version)
                    else:
                        raise DecodeError(f'an event of unknown type "{kind}"')
                except (UnicodeDecodeError, RecursionError) as error:
                    repaired = self._decoder.repaired(frame, error)
                    if repaired is not None:
                        self._frames(store, stream, [repaired])
                    continue
                stream.version = metadata.resource_version or stream.version
        finally:
            store.flush()

    # ------------------------------------------------------------------------------------------------------------- request

    async def _open(self, version: str, *, initial: bool = False) -> ReflectorStream:
        await self._close()
        # Random, so that watches that began together do not reconnect together.
        seconds = self._rng.randint(*self._policy.watch_seconds)
        request = await self._requests.watch(version, seconds, initial=initial)
        stream = self._stream = ReflectorStream(request, self._clock, seconds)
        await stream.open(SILENCE if initial else None)
        self.watches += 1
        self.watching = True
        self._reporter.worked()
        return stream

    async def _close(self) -> None:
        self.watching = False
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()

    def _so_far(self) -> tuple[int, float]:
        return (0, 0.0) if self._stream is None else (self._stream.events, self._stream.lasted)
