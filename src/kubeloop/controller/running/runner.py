"""Runs one controller: connects it to informers, turns their events into keys, and keys into reconciles."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kubeloop.cache import Event, Head, Informer, Registration
from kubeloop.controller.declaring.controller import OWNER_INDEX, Controller, ControllerBase, KeyController
from kubeloop.controller.declaring.declaration import Declaration, DeclarationError
from kubeloop.controller.declaring.surroundings import Connection, Surroundings
from kubeloop.controller.events import FLUSH, EventRecorder
from kubeloop.controller.running.result import Result
from kubeloop.controller.running.runnable import RunnerStats
from kubeloop.controller.running.workers import ReconcileCounts, Workers
from kubeloop.controller.triggers.predicates import Predicate
from kubeloop.controller.triggers.watch import MapHead, to_controller
from kubeloop.meta import DeadlineError, ObjectKey, Resource, UnknownKind
from kubeloop.timing import Backoff
from kubeloop.transport import logger_with_context
from kubeloop.workqueue import ExponentialLimiter, QueueStats, WorkQueue

log = logger_with_context(__name__)

R = TypeVar("R", bound=Resource)


class Runner(Generic[R]):
    """Runs a ``Controller`` or ``KeyController``.

    Back-off of failing keys: 5 ms doubling to 1000 s, each key by itself (controller-runtime's default; behaviour X12).
    """

    def __init__(self, controller: ControllerBase[R], *, name: str = "") -> None:
        """``name``: where several of one class run, for several clusters; default the class's."""
        self._controller = controller
        self._declaration: Declaration = type(controller).declaration()
        self._name = name or self._declaration.name
        if not isinstance(controller, Controller | KeyController):
            raise DeclarationError(f"{type(controller).__name__} must derive from Controller or KeyController")
        reconcile = type(controller).reconcile
        self._plain = not inspect.iscoroutinefunction(reconcile)
        self._pool: ThreadPoolExecutor | None = None
        self._registrations: list[Registration[Any]] = []
        self._surroundings: Surroundings | None = None
        self._recorder: EventRecorder | None = None
        self._queue: WorkQueue[ObjectKey] | None = None
        self._workers: Workers[ObjectKey] | None = None
        self._last_change: Event[Any] | None = None
        self._connected = False
        self._stopping = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def needs_leader(self) -> bool:
        return True

    @property
    def warm_up(self) -> bool:
        return False

    @property
    def stats(self) -> RunnerStats:
        queue = self._queue.stats if self._queue is not None else QueueStats(0, 0, 0, 0, 0)
        counts = self._workers.counts if self._workers is not None else ReconcileCounts()
        event = self._last_change
        change = f"{event.view.kind.kind} {event.key} {event.type.value}" if event is not None else ""
        return RunnerStats(self.name, self._declaration.workers, queue, counts, change)

    async def connect(self, surroundings: Surroundings) -> None:
        declared = self._declaration
        self._surroundings = surroundings
        client, clock = surroundings.client, surroundings.clock
        self._queue = WorkQueue(ExponentialLimiter(), clock)
        self._workers = Workers(
            self._name, self._reconcile, self._queue, declared.workers, cluster=client.cluster, clock=clock, timeout=declared.timeout
        )
        flush = FLUSH if surroundings.grace is None else min(FLUSH, surroundings.grace)
        self._recorder = EventRecorder(client, declared.name, clock=clock, flush=flush)
        await self._recorder.__aenter__()
        namespaced = await _is_namespaced(declared.kind, surroundings)
        sources = _Sources(declared)
        sources.add(declared.kind, to_itself, declared.predicates)
        for kind in declared.owns:
            sources.add(kind, to_controller(declared.kind, namespaced=namespaced), ())
        for watch in declared.watches:
            sources.add(watch.kind, watch.to, watch.predicates, watch.paths)
        informers: dict[type[Resource], Informer[Any]] = {}
        for kind in dict.fromkeys([*sources.handlers, *declared.reads]):
            selection = surroundings.scope.select(kind, namespaced=await _is_namespaced(kind, surroundings))
            informers[kind] = surroundings.informers.of(
                kind, **selection, indexes=sources.indexes(kind), paths=tuple(sources.paths.get(kind, ()))
            )
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        queue = self._queue

        def enqueue(key: ObjectKey, after: float) -> None:
            whole = key if key.cluster else key._replace(cluster=client.cluster)
            if threading.get_ident() == thread:
                queue.add_after(whole, after)
            else:
                loop.call_soon_threadsafe(queue.add_after, whole, after)

        self._controller.connect(Connection(surroundings, self._recorder, informers, enqueue))
        self._connected = True
        for kind, handlers in sources.handlers.items():
            handler = self._handler(handlers, queue.add, client.cluster)
            self._registrations.append(informers[kind].on_event(added=handler, updated=handler, deleted=handler))

    async def synced(self, timeout: float) -> None:
        for registration in self._registrations:
            await registration.wait_synced(timeout)

    async def run(self) -> None:
        workers = self._workers
        if workers is None:
            raise DeclarationError(f"controller {self.name} was not connected")
        if self._plain:
            self._pool = ThreadPoolExecutor(self._declaration.workers, thread_name_prefix=self.name)
        await self._controller.start()
        try:
            await workers.run()
        finally:
            await self._controller.stop()

    def stop(self) -> None:
        self._stopping = True
        if self._workers is not None:
            self._workers.stop()

    async def close(self) -> None:
        for registration in self._registrations:
            registration.remove()
        if self._queue is not None:
            self._queue.shut_down()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self._recorder is not None:
            await self._recorder.__aexit__(None, None, None)
        if self._connected:
            self._controller.disconnect()
            self._connected = False

    def _handler(self, handlers: list[_Handler], add: Callable[[ObjectKey], None], cluster: str) -> Callable[[Event[Any]], None]:
        def handle(event: Event[Any]) -> None:
            keys: dict[ObjectKey, None] = {}
            failure: Exception | None = None
            for handler in handlers:
                try:
                    if all(predicate(event) for predicate in handler.predicates):
                        for head in (event.head, event.old):
                            if head is not None:
                                keys.update(dict.fromkeys(handler.to(head)))
                except Exception as error:  # noqa: BLE001  # a watch's function must not cost the others their keys; raised below
                    failure = failure or error
            if keys:
                self._last_change = event
                for key in keys:
                    add(key if key.cluster else key._replace(cluster=cluster))
            if failure is not None:
                raise failure

        return handle

    async def _reconcile(self, key: ObjectKey) -> Result | None:
        controller = self._controller
        argument: Any = key
        if isinstance(controller, Controller):
            argument = controller.lister(self._declaration.kind).get(key.name, key.namespace)
            if argument is None:
                return None
        reconcile: Callable[[Any], Any] = controller.reconcile  # type: ignore[attr-defined]  # checked in __init__: one of the two classes
        if self._pool is not None:
            context = contextvars.copy_context()
            work = asyncio.get_running_loop().run_in_executor(self._pool, context.run, reconcile, argument)
            try:
                answer = await asyncio.shield(work)
            except asyncio.CancelledError:
                # A thread cannot be interrupted. Until it has ended its key stays taken, unless everything ends.
                if not self._stopping:
                    await asyncio.wait([work])
                raise
        else:
            answer = reconcile(argument)
        result: Result | None = await answer if inspect.isawaitable(answer) else answer
        return result


async def _is_namespaced(kind: type[Resource], surroundings: Surroundings) -> bool:
    """The scope of a kind, from its class or from the server; waits for a definition that may be installed later.

    Raises:
        DeadlineError: it was not installed in time.
    """
    clock = surroundings.clock
    deadline = clock.now() + surroundings.sync_timeout
    backoff = Backoff(initial=0.2, cap=5.0, clock=clock)
    while True:
        try:
            return (await surroundings.client.mapping(kind)).namespaced
        except UnknownKind as error:
            left = deadline - clock.now()
            if left <= 0:
                raise DeadlineError(f"after {surroundings.sync_timeout:g} s: not synced: {error}") from error
            log.warning("%s; waiting for it", error)
            await clock.sleep(min(backoff.next(), left))


def to_itself(head: Head) -> list[ObjectKey]:
    return [ObjectKey("", head.namespace, head.name)]


@dataclass(frozen=True, slots=True)
class _Handler:
    to: MapHead
    predicates: tuple[Predicate, ...]


class _Sources:
    """What to ask of the informer of each kind: handlers, indexes and paths, of all declarations together."""

    def __init__(self, declared: Declaration) -> None:
        self._declared = declared
        self.handlers: dict[type[Resource], list[_Handler]] = {}
        self.paths: dict[type[Resource], dict[str, None]] = {}

    def add(self, kind: type[Resource], to: MapHead, predicates: tuple[Predicate, ...], paths: Iterable[str] = ()) -> None:
        self.handlers.setdefault(kind, []).append(_Handler(to, predicates))
        wanted = self.paths.setdefault(kind, {})
        for path in (*paths, *(path for predicate in predicates for path in predicate.paths)):
            wanted[path] = None

    def indexes(self, kind: type[Resource]) -> dict[str, Any]:
        indexes = dict(self._declared.indexes.get(kind, {}))
        if kind in self._declared.owns:
            indexes[OWNER_INDEX] = "metadata.ownerReferences[*].uid"
        return indexes
