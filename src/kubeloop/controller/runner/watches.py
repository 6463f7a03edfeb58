"""Watches and sources of one controller: its informers with their handlers, indexes and paths, and its channels."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, cast

from kubeloop.cache import EventType, Informer, InformerEvent
from kubeloop.controller.builder.context import RunnableContext
from kubeloop.controller.builder.controller import OWNER_INDEX
from kubeloop.controller.builder.declaration import Declaration
from kubeloop.controller.handler.map_funcs import MapFunc, MapHead, MapTarget, to_owner
from kubeloop.controller.handler.predicates import Predicate
from kubeloop.controller.handler.routes import Enqueuer, Route, handler_of
from kubeloop.controller.handler.watch import Channel, SourceError
from kubeloop.meta import DeadlineError, Forbidden, KubeloopError, NotFound, ObjectKey, Resource, UnknownKind, kind_info
from kubeloop.meta.failure_log import FailureLog
from kubeloop.tasks import end_tasks
from kubeloop.timing import Backoff, Clock
from kubeloop.transport import log_context, logger_with_context

_LOG = logger_with_context("kubeloop.controller.runner")

#: Value of the pause annotation that pauses an object.
PAUSED = "true"


class Watches:
    """The informers of one controller, and the handlers that enqueue keys for their events."""

    def __init__(self, declared: Declaration, owner: object) -> None:
        """Create the watches of a controller. ``owner`` is the controller object, for watches that name a method, and for messages."""
        self._declared = declared
        self._owner = owner
        self._scopes: dict[type[Resource], bool] = {}
        self._metadata_only: dict[type[Resource], bool] = {}
        self._paths: dict[type[Resource], dict[str, None]] = {}
        self._informers: dict[type[Resource], Informer[Any]] = {}
        self.pause_path = f'metadata.annotations["{declared.pause_annotation}"]' if declared.pause_annotation else ""

    async def informers(self, context: RunnableContext) -> dict[type[Resource], Informer[Any]]:
        """Return the informer of each kind that the controller uses.

        Raises:
            DeadlineError: a kind was not served in time.
        """
        declared = self._declared
        self._use(declared.kind, declared.metadata_only, declared.predicates, [self.pause_path] if self.pause_path else [])
        for owned in declared.owns:
            self._use(owned.kind, owned.metadata_only, owned.predicates)
        for watch in declared.watches:
            paths = watch.to.paths if isinstance(watch.to, MapFunc) else ()
            self._use(watch.kind, watch.metadata_only, watch.predicates, (*watch.paths, *paths))
        for kind in declared.reads:
            self._use(kind, False, ())
        for kind in self._paths:
            self._scopes[kind] = await is_namespaced(kind, context, type(self._owner).__name__)
            self._informers[kind] = self._informer(kind, context)
        return self._informers

    @property
    def namespaced(self) -> bool:
        """Whether the main kind is namespaced. Known after a call of ``informers``."""
        return self._scopes[self._declared.kind]

    @property
    def written(self) -> list[Informer[Any]]:
        """The informers of the kinds that reconciles write: the main kind, the owned ones, and those of ``writes`` that are cached."""
        kinds = [self._declared.kind, *(owned.kind for owned in self._declared.owns), *self._declared.writes, *self._declared.status_writes]
        return [self._informers[kind] for kind in dict.fromkeys(kinds) if kind in self._informers]

    def handlers(self, enqueuer: Enqueuer, cluster: str) -> dict[Informer[Any], Callable[[InformerEvent[Any]], object]]:
        """Return the handler for the events of each informer.

        Raises:
            KubeloopError: a mapping cannot work; the message names the controller and the watched kind.
        """
        declared = self._declared
        target = MapTarget(self.namespaced, self._informers[declared.kind].lister)
        routes: dict[type[Resource], list[Route]] = {declared.kind: [Route(None, declared.predicates)]}
        if self.pause_path and declared.predicates:
            routes[declared.kind].append(Route(None, (_let_go(self.pause_path, declared.predicates),)))
        for owned in declared.owns:
            to = to_owner(declared.kind, namespaced=self.namespaced, every=owned.every_owner)
            routes.setdefault(owned.kind, []).append(Route(to, owned.predicates))
        for watch in declared.watches:
            owner = f"{type(self._owner).__name__}, the watch of {watch.kind.__name__}"
            routes.setdefault(watch.kind, []).append(Route(self._mapped(watch.kind, watch.to, target), watch.predicates, owner))
        return {self._informers[kind]: handler_of(of_kind, enqueuer, cluster) for kind, of_kind in routes.items()}

    def explain(self, error: BaseException) -> None:
        """Add a note with advice to an error of the start for each kind that this controller may not list, or that is not served."""
        for kind, informer in self._informers.items():
            failure = informer.failure
            if informer.synced or failure is None:
                continue
            declared = f"because it declares {kind.__name__} ({self._where(kind)})"
            needed = f"{type(self._owner).__name__} lists and watches {informer.description}, {declared}"
            if isinstance(failure, Forbidden):
                error.add_note(f"{needed}: grant its account the verbs list and watch there, or remove the kind from the declaration")
            elif isinstance(failure, NotFound):
                error.add_note(f"{needed}: the server does not serve it: install its CustomResourceDefinition (kubectl apply -f)")

    def _where(self, kind: type[Resource]) -> str:
        """Return where the class declares a kind, in words."""
        declared = self._declared
        if kind is declared.kind:
            return f"Controller[{kind.__name__}]"
        if any(owned.kind is kind for owned in declared.owns):
            return "owns"
        return "watches" if any(watch.kind is kind for watch in declared.watches) else "reads"

    def _mapped(self, kind: type[Resource], to: MapHead | MapFunc | str, target: MapTarget) -> MapHead:
        if isinstance(to, str):
            return cast("MapHead", getattr(self._owner, to))
        if not isinstance(to, MapFunc):
            return to
        try:
            return to.bind(target)
        except (KubeloopError, LookupError, ValueError) as error:
            raise KubeloopError(f"{type(self._owner).__name__}: the watch of {kind.__name__} cannot be mapped: {error}") from error

    def _use(self, kind: type[Resource], metadata_only: bool, predicates: tuple[Predicate, ...], paths: Iterable[str] = ()) -> None:
        """Collect the paths of a kind for one shared informer, which caches whole objects unless all uses want only metadata."""
        self._metadata_only[kind] = metadata_only and self._metadata_only.get(kind, True)
        needed = self._paths.setdefault(kind, {})
        for path in (*paths, *(path for predicate in predicates for path in predicate.paths)):
            needed[path] = None

    def _informer(self, kind: type[Resource], context: RunnableContext) -> Informer[Any]:
        selection = context.scope.select(kind, namespaced=self._scopes[kind])
        indexes = dict(self._declared.indexes.get(kind, {}))
        if any(owned.kind is kind for owned in self._declared.owns):
            indexes[OWNER_INDEX] = "metadata.ownerReferences[*].uid"
        paths = tuple(self._paths[kind])
        if self._metadata_only[kind]:
            return context.informers.metadata(kind, **selection, indexes=indexes, paths=paths)
        return context.informers.for_kind(kind, **selection, indexes=indexes, paths=paths)


def _let_go(path: str, predicates: tuple[Predicate, ...]) -> Predicate:
    """Return a predicate that accepts updates that ended a pause, if ``predicates`` accept the creation of the object."""

    def test(event: InformerEvent[Any]) -> bool:
        old, head = event.old, event.head
        if event.type is not EventType.MODIFIED or old is None or old.value(path) != PAUSED or head.value(path) == PAUSED:
            return False
        return all(predicate(InformerEvent(EventType.ADDED, head, None, event.view)) for predicate in predicates)

    return Predicate(test, (path,))


async def is_namespaced(kind: type[Resource], context: RunnableContext, owner: str) -> bool:
    """Return whether a kind is namespaced, by its class or by the server. Wait for a definition that may be installed later.

    Raises:
        DeadlineError: the kind was not served in time.
    """
    clock = context.clock
    deadline = clock.now() + context.sync_timeout
    backoff = Backoff(initial=0.2, cap=5.0, clock=clock)
    while True:
        try:
            return (await context.client.mapping(kind)).namespaced
        except UnknownKind as error:
            left = deadline - clock.now()
            if left <= 0:
                raise DeadlineError(
                    f"after {context.sync_timeout:g} s: not synced: {owner} uses {kind_info(kind).gvk}, but {error}"
                ) from error
            _LOG.warning("%s: %s; waiting for it", owner, error)
            await clock.sleep(min(backoff.next(), left))


class ChannelReader:
    """Reads the channels of a controller, one task for each, from ``start`` to ``close``. ``Channel`` says how failed sources are handled.

    Args:
        owner: Name of the controller's class, for messages.
        channels: The channels.
        enqueue: Called with each key, a delay in seconds and a priority.
        clock: Clock of the delays before a source is opened again.
    """

    def __init__(
        self, owner: str, channels: Sequence[Channel[Any]], enqueue: Callable[[ObjectKey, float, int], None], clock: Clock
    ) -> None:
        self._owner = owner
        self._channels = channels
        self._enqueue = enqueue
        self._clock = clock
        self._failures: FailureLog[str] = FailureLog(_LOG)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for channel in self._channels:
            self._tasks.append(asyncio.create_task(self._read(channel), name=f"kubeloop source {channel.name} of {self._owner}"))

    async def close(self) -> None:
        await end_tasks(*self._tasks, expected=(SourceError,), logger=_LOG)  # ``beside`` raises a SourceError

    async def beside(self, work: Coroutine[object, object, None], stop: Callable[[], None]) -> None:
        """Await ``work``, and call ``stop`` if a source fails permanently.

        Raises:
            SourceError: a source failed permanently.
        """
        for task in self._tasks:
            task.add_done_callback(lambda _: stop() if self._broken() else None)
        if self._broken():
            stop()
        await work
        broken = self._broken()
        if broken is not None:
            raise broken

    def _broken(self) -> BaseException | None:
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        return next((error for task in ended if (error := task.exception()) is not None), None)

    async def _read(self, channel: Channel[Any]) -> None:
        backoff = Backoff(clock=self._clock)
        with log_context(controller=self._owner, source=channel.name):
            while True:
                try:
                    async for item in channel.items():
                        self._take(channel, item)
                except (Exception, asyncio.CancelledError, SystemExit) as error:
                    task = asyncio.current_task()
                    if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                        raise  # This task is being cancelled. Otherwise something that the source awaited was cancelled.
                    if not channel.reopens:
                        raise SourceError(
                            f"source {channel.name} of {self._owner} broke: {type(error).__name__}: {error}; its pending events are lost. "
                            "Pass Channel a function that opens the source, so that it can be reopened"
                        ) from error
                    delay = backoff.next()
                    traceback, message = self._failures.failed(channel.name, error), f"{type(error).__name__}: {error}"
                    details = (channel.name, self._owner, message, delay)
                    _LOG.log(logging.ERROR, "source %s of %s broke: %s; reopening it in %.1f s", *details, exc_info=traceback)
                    await self._clock.sleep(delay)
                else:
                    _LOG.info("source %s of %s has ended", channel.name, self._owner)
                    return

    def _take(self, channel: Channel[Any], item: Any) -> None:
        try:
            keys = channel.keys(item)
        except Exception as error:  # noqa: BLE001 - logged
            # An invalid item does not end the source: the next item may be valid.
            traceback, message = self._failures.failed(f"{channel.name}/item", error), f"{type(error).__name__}: {error}"
            details = (channel.name, self._owner, message)
            _LOG.log(logging.ERROR, "source %s of %s: skipped an item that cannot be mapped: %s", *details, exc_info=traceback)
            return
        for key in keys:
            self._enqueue(key, 0.0, channel.priority)
